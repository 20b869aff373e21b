#include "lockstep/observe/metrics_log.h"

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

// Every row that a run writes starts with this text. Other lines are not ours and stay.
constexpr std::string_view kRowStart = "{\"kind\":\"";

// Returns whether the line is a row that a crash or a full disk has cut off: the start of a row, or zeros where the
// file has grown but the data was never written.
bool is_torn_row(std::string_view line) {
  const bool start_of_row = line.starts_with(kRowStart) || (!line.empty() && kRowStart.starts_with(line));
  return start_of_row || (!line.empty() && line.find_first_not_of('\0') == std::string_view::npos);
}

struct Rewritten {
  std::string text;
  int64_t dropped = 0;  // rows
  bool ends_in_line = true;
};

// Returns the text of the file without torn rows and without rows for which `keep` is false.
template <class Keep>
Rewritten rewrite(const std::string& path, const Keep& keep) {
  Rewritten result;
  std::ifstream in(path, std::ios::binary);
  std::string line;
  while (std::getline(in, line)) {
    const bool whole = !in.eof();
    const Json row = line.starts_with(kRowStart) ? Json::parse(line, nullptr, false) : Json();
    const bool dropped = whole && row.is_object() ? !keep(row) : is_torn_row(line);
    result.dropped += dropped;
    if (dropped) continue;
    result.text += line;
    if (whole) result.text += '\n';
    result.ends_in_line = whole;
  }
  if (in.bad())
    fail(ExitCode::checkpoint, "{}: cannot be read to its end", path);  // a partial text must not replace it
  return result;
}

// Returns whether `row` belongs to a step that the run does not repeat.
bool is_up_to(const Json& row, int64_t last_step) {
  const auto step = row.find("step");
  return step == row.end() || !step->is_number() || step->get<double>() <= static_cast<double>(last_step);
}

}  // namespace

MetricsLog::MetricsLog(std::string path, int64_t resumed_step) : path_(std::move(path)) { go_back(resumed_step); }

void MetricsLog::go_back(int64_t step) {
  if (path_.empty()) return;
  clean_and_open([&](const Json& row) { return is_up_to(row, step); });
}

bool MetricsLog::drop(std::string_view kind, int64_t step) {
  if (path_.empty()) return false;
  return clean_and_open([&](const Json& row) {
           return row.value("kind", Json()) != kind || row.value("step", Json()) != step;
         }) > 0;
}

// Returns the number of removed lines. The file is rewritten only if a line is removed, and not read if it could not be
// opened as a regular file: a pipe, for instance, might never end.
template <class Keep>
int64_t MetricsLog::clean_and_open(const Keep& keep) {
  open();
  if (!file_) return 0;
  try {
    const Rewritten result = rewrite(path_, keep);
    torn_ = !result.ends_in_line;
    if (result.dropped == 0) return 0;
    write_text_atomically(path_, result.text, ExitCode::checkpoint);
    open();
    return result.dropped;
  } catch (const std::exception& error) {
    log_warning("rows of repeated steps stay in the metrics: {}", error.what());
    return 0;
  }
}

void MetricsLog::open() {
  try {
    file_ = open_for_appending(path_, ExitCode::checkpoint);
  } catch (const Error& error) {
    file_.reset();
    log_warning("metrics cannot be written: {}", error.what());
  }
}

// The run's directory may have been deleted or moved, or the file may have been replaced.
void MetricsLog::reopen_if_gone() {
  if (file_ && is_at(file_, path_)) return;
  if (file_) log_warning("{}: was deleted or moved during the run; a new file is started", path_);
  torn_ = false;
  open();
}

void MetricsLog::write(std::string_view row) {
  if (path_.empty()) return;
  reopen_if_gone();
  if (!file_) return;
  const std::string line = fmt::format("{}{}\n", torn_ ? "\n" : "", row);
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    torn_ = false;
    return;
  }
  torn_ = torn_ || written > 0;
  log_warning("{}: metrics could not be written ({})", path_, written < 0 ? errno_text(errno) : "disk full");
}

}  // namespace lockstep
