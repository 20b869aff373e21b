#include "lockstep/io/path_pattern.h"

#include <glob.h>
#include <sys/stat.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

bool exists(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0;
}

// Returns the pattern without the backslashes that escape characters.
std::string without_escapes(std::string_view pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    path += pattern[i];
  }
  return path;
}

bool hides_matches(int error) { return error != ENOENT && error != ENOTDIR; }

thread_local std::string unreadable;  // a global, because glob() passes no user data to its callback

int note_unreadable(const char* path, int error) {
  if (unreadable.empty() && hides_matches(error)) unreadable = fmt::format("{}: {}", path, errno_text(error));
  return 0;
}

}  // namespace

std::string literal_pattern(std::string_view path) {
  constexpr std::string_view kSpecial = "*?[]{},~\\";
  std::string pattern;
  for (const char c : path) {
    if (kSpecial.find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::vector<std::string> matching_paths(const std::string& pattern) {
  if (exists(pattern)) return {pattern};
  if (const std::string plain = without_escapes(pattern); exists(plain)) return {plain};
  std::vector<std::string> found;
  glob_t matches = {};
  if (::glob(pattern.c_str(), GLOB_BRACE, nullptr, &matches) == 0) {
    found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  ::globfree(&matches);
  return found;
}

std::string unreadable_directory(const std::string& pattern) {
  struct stat status = {};
  for (const std::string& path : {pattern, without_escapes(pattern)}) {
    if (::stat(path.c_str(), &status) != 0 && hides_matches(errno))
      return fmt::format("{}: {}", path, errno_text(errno));
  }
  unreadable.clear();
  glob_t matches = {};
  ::glob(pattern.c_str(), GLOB_BRACE, note_unreadable, &matches);
  ::globfree(&matches);
  return unreadable;
}

}  // namespace lockstep
