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

// Whether a line is a row of a step that the run does not repeat.
bool is_kept(const std::string& line, int64_t last_step) {
  const auto row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object()) return false;
  const auto step = row.find("step");
  return step == row.end() || !step->is_number() || step->get<double>() <= static_cast<double>(last_step);
}

// The whole lines of the file that belong to steps up to `last_step`; false when nothing has to change.
bool mended_text(const std::string& path, int64_t last_step, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  bool changed = false;
  std::string line;
  while (std::getline(in, line)) {
    const bool keep = !in.eof() && is_kept(line, last_step);
    if (keep) text += line + '\n';
    changed = changed || !keep;
  }
  return changed;
}

void mend(const std::string& path, int64_t last_step) {
  try {
    std::string text;
    if (mended_text(path, last_step, text)) write_text_atomically(path, text, ExitCode::checkpoint);
  } catch (const Error& error) {
    log_warning("rows of repeated steps stay in the metrics: {}", error.what());
  }
}

}  // namespace

MetricsLog::MetricsLog(std::string path, int64_t resumed_step) : path_(std::move(path)) { open(resumed_step); }

MetricsLog::~MetricsLog() { close(); }

void MetricsLog::go_back(int64_t step) {
  close();
  open(step);
}

void MetricsLog::open(int64_t resumed_step) {
  if (path_.empty()) return;
  mend(path_, resumed_step);
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
