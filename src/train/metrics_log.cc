#include "lockstep/train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Whether `row` is of a step that the run does not repeat.
bool is_up_to(const Json& row, int64_t last_step) {
  const auto step = row.find("step");
  return step == row.end() || !step->is_number() || step->get<double>() <= static_cast<double>(last_step);
}

// The whole lines of the file whose rows are kept, and how many are not.
template <class Keep>
int64_t kept_text(const std::string& path, const Keep& keep, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  int64_t dropped = 0;
  std::string line;
  while (std::getline(in, line)) {
    const Json row = Json::parse(line, nullptr, false);
    const bool kept = !in.eof() && row.is_object() && keep(row);
    if (kept) text += line + '\n';
    dropped += !kept;
  }
  return dropped;
}

// Leaves whole rows that are kept; returns how many lines went. The file is not written anew when none has to.
template <class Keep>
int64_t mend(const std::string& path, const Keep& keep) {
  try {
    std::string text;
    const int64_t dropped = kept_text(path, keep, text);
    if (dropped > 0) write_text_atomically(path, text, ExitCode::checkpoint);
    return dropped;
  } catch (const Error& error) {
    log_warning("rows of repeated steps stay in the metrics: {}", error.what());
    return 0;
  }
}

}  // namespace

MetricsLog::MetricsLog(std::string path, int64_t resumed_step) : path_(std::move(path)) { go_back(resumed_step); }

MetricsLog::~MetricsLog() { close(); }

void MetricsLog::go_back(int64_t step) {
  if (path_.empty()) return;
  close();
  mend(path_, [&](const Json& row) { return is_up_to(row, step); });
  open();
}

bool MetricsLog::drop(std::string_view kind, int64_t step) {
  if (path_.empty()) return false;
  close();
  const int64_t dropped = mend(
      path_, [&](const Json& row) { return row.value("kind", Json()) != kind || row.value("step", Json()) != step; });
  open();
  return dropped > 0;
}

void MetricsLog::open() {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) log_warning("{}: metrics cannot be written ({})", path_, errno_text(errno));
}

void MetricsLog::close() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void MetricsLog::write(std::string_view row) {
  if (file_ < 0) return;
  const std::string line = fmt::format("{}{}\n", torn_ ? "\n" : "", row);
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    torn_ = false;
    return;
  }
  torn_ = torn_ || written > 0;
  log_warning("{}: metrics could not be written ({})", path_, written < 0 ? errno_text(errno) : "disk full");
}

}  // namespace lockstep
