#include "lockstep/io/toml_limits.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Scans the text. Brackets and dots in strings and comments do not count.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void run() {
    while (at_ < text_.size()) take(text_[at_]);
  }

 private:
  void take(char c) {
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"' || c == '\'') {
      skip_string(c);
    } else {
      count(c);
      ++at_;
    }
  }

  void count(char c) {
    if (c == '.') {
      check(++parts_, "a dotted key has more than {} parts");
      return;
    }
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') parts_ = 1;
    if (c == '[' || c == '{') check(++open_, "more than {} brackets are open");
    if ((c == ']' || c == '}') && open_ > 0) --open_;
  }

  void check(size_t depth, fmt::format_string<size_t> what) const {
    if (depth <= kMaxTomlDepth) return;
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    fail(ExitCode::config, "{}:{}: not valid TOML: {}", path_, line, fmt::format(what, size_t{kMaxTomlDepth}));
  }

  // Moves past the string that starts here. If the string is not terminated, the parser reports that before it reads
  // anything after it, so the position does not matter then.
  void skip_string(char quote) {
    const std::string_view rest = text_.substr(at_);
    const size_t quotes = std::min(rest.find_first_not_of(quote), rest.size());
    if (quotes == 2) {  // an empty string
      at_ += 2;
      return;
    }
    const bool several_lines = quotes >= 3;
    const std::string end(several_lines ? 3 : 1, quote);
    at_ += end.size();
    while (at_ < text_.size() && !text_.substr(at_).starts_with(end)) {
      if (text_[at_] == '\n' && !several_lines) return;
      at_ += text_[at_] == '\\' && quote == '"' ? 2 : 1;
    }
    at_ = std::min(at_ + end.size(), text_.size());
    while (several_lines && at_ < text_.size() && text_[at_] == quote)
      ++at_;  // the string may end with up to two quotes of its own
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
  size_t parts_ = 1, open_ = 0;
};

}  // namespace

void require_bounded_toml(std::string_view text, const std::string& path) {
  if (text.size() > kMaxTomlBytes) {
    fail(ExitCode::config, "{}: {} bytes are too many for a configuration; the limit is {}", path, text.size(),
         size_t{kMaxTomlBytes});
  }
  Scanner(text, path).run();
}

}  // namespace lockstep
