#include "app/cli/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "test/catch.h"
#include "test/redirected.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

bool takes_colors_with(const std::map<std::string, std::string>& variables) {
  return takes_colors([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("colors are for terminals that have them, unless NO_COLOR says something") {
  CHECK(takes_colors_with({{"TERM", "xterm-256color"}}));
  CHECK(takes_colors_with({{"TERM", "linux"}, {"NO_COLOR", ""}}));  // empty: as if it were not set
  CHECK_FALSE(takes_colors_with({{"TERM", "xterm"}, {"NO_COLOR", "1"}}));
  CHECK_FALSE(takes_colors_with({{"TERM", "xterm"}, {"NO_COLOR", "false"}}));  // whatever it says
  CHECK_FALSE(takes_colors_with({{"TERM", "dumb"}}));
  CHECK_FALSE(takes_colors_with({}));
}

TEST_CASE("a line is drawn again only on terminals that know how") {
  const auto moves = [](std::optional<std::string> term) { return moves_cursor([&](const char*) { return term; }); };
  CHECK(moves("xterm"));
  CHECK_FALSE(moves("dumb"));
  CHECK_FALSE(moves(""));
  CHECK_FALSE(moves(std::nullopt));
}

TEST_CASE("output that goes to a file is at no terminal, and that to a pseudo-terminal has its width") {
  const ScratchDirectory directory;
  {
    const Redirected out(STDOUT_FILENO, directory / "out");
    CHECK_FALSE(output_is_terminal(STDOUT_FILENO));
  }
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  const winsize size{.ws_row = 24, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::ioctl(terminal, TIOCSWINSZ, &size) == 0);
  const std::string path = ::ptsname(terminal);
  bool is_terminal = false;
  int columns = 0;
  {
    const Redirected out(STDOUT_FILENO, path);
    is_terminal = output_is_terminal(STDOUT_FILENO);
    columns = terminal_columns();
  }
  ::close(terminal);
  CHECK(is_terminal);
  CHECK(columns == 77);
}
