#include "lockstep/train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

// The whole lines of the file that belong to steps up to `last_step`; false when nothing has to change.
bool mended_text(const std::string& path, int64_t last_step, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  bool changed = false;
  std::string line;
  while (std::getline(in, line)) {
    const bool whole = !in.eof();
    const auto row = nlohmann::json::parse(line, nullptr, false);
    const bool keep = whole && row.is_object() && row.value("step", int64_t{0}) <= last_step;
    if (keep) text += line + '\n';
    changed = changed || !keep;
  }
  return changed;
}

void mend(const std::string& path, int64_t last_step) {
  std::string text;
  if (!mended_text(path, last_step, text)) return;
  const std::string temporary = path + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << text;
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    log_warning("{}: could not drop repeated rows ({})", path, errno_text(errno));
  }
}

}  // namespace

MetricsLog::MetricsLog(std::string path, int64_t resumed_step) : path_(std::move(path)) {
  if (path_.empty()) return;
  mend(path_, resumed_step);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) log_warning("{}: metrics cannot be written ({})", path_, errno_text(errno));
}

MetricsLog::~MetricsLog() {
  if (file_ >= 0) ::close(file_);
}

void MetricsLog::write(const nlohmann::ordered_json& row) {
  if (file_ < 0) return;
  const std::string line = row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    log_warning("{}: metrics could not be written ({})", path_, written < 0 ? errno_text(errno) : "disk full");
  }
}

}  // namespace lockstep
