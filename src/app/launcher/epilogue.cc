#include "app/launcher/epilogue.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"

namespace lockstep {
namespace {

constexpr size_t kLines = 7, kCodeLine = 5;

bool is_rule(std::string_view line) {
  return line.size() >= 40 && line.find_first_not_of('-') == std::string_view::npos;
}

// Whether this can be line `number` of an epilogue.
bool fits(size_t number, std::string_view line) {
  switch (number) {
    case 1:
      return line.ends_with(" detected that one or more processes exited with non-zero status,");
    case 2:
      return line == "thus causing the job to be terminated. The first process to do so was:";
    case 3:
      return line.empty();
    case 4:
      return line.starts_with("   Process name: [");
    case kCodeLine:
      return line.starts_with("   Exit code:    ");
    default:
      return is_rule(line);
  }
}

// Whether the ranks print one line that explains the code, or a request explains it.
bool is_explained(std::string_view exit_code) {
  const auto code = parse_number<int>(exit_code);
  return code && ((*code >= static_cast<int>(ExitCode::config) && *code <= static_cast<int>(ExitCode::stalled)) ||
                  *code == static_cast<int>(ExitCode::stopped) || *code == 130);
}

}  // namespace

std::string EpilogueFilter::pass(std::string_view text) {
  std::string passed;
  held_ += text;
  for (size_t end = held_.find('\n', checked_); end != std::string::npos; end = held_.find('\n', checked_)) {
    const std::string_view line = std::string_view(held_).substr(checked_, end - checked_);
    const bool fitting = fits(lines_, line);
    // A rule that does not fit here is tested again as the first line of an epilogue.
    if (fitting || !is_rule(line)) checked_ = end + 1;
    if (fitting && lines_ == kCodeLine) explained_ = is_explained(line.substr(line.rfind(' ') + 1));
    if (fitting && ++lines_ < kLines) continue;
    if (!fitting || !explained_) passed += held_.substr(0, checked_);
    held_.erase(0, checked_);
    checked_ = lines_ = 0;
  }
  return passed;
}

std::string EpilogueFilter::rest() { return std::exchange(held_, {}); }

}  // namespace lockstep
