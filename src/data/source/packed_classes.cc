#include "data/source/packed_classes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/split_words.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;

std::string path_in(const std::string& directory) { return directory + "/lockstep_classes.txt"; }

std::vector<std::string> lines_of(std::string_view text) {
  const std::vector<std::string_view> lines = split_words(text, '\n');
  return {lines.begin(), lines.end()};
}

}  // namespace

void write_class_names(const std::string& directory, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const bool one_line_each =
      std::ranges::none_of(names, [](const std::string& name) { return name.find('\n') != std::string::npos; });
  if (!one_line_each) {
    log_warning("the names of the classes are not packed: one has a line feed");
    return;
  }
  const std::string path = path_in(directory);
  if (path_exists(path) && lines_of(read_text_file(path, ExitCode::data, kMostBytes)) != names) {
    fail(ExitCode::data, "{}: names other classes than the data to be packed have", path);
  }
  write_text_atomically(path, fmt::format("{}\n", fmt::join(names, "\n")), ExitCode::data);
}

std::vector<std::string> read_class_names(const std::vector<std::string>& files) {
  if (files.empty()) return {};
  const auto directory_of = [](const std::string& file) { return std::filesystem::path(file).parent_path(); };
  const auto directory = directory_of(files.front());
  const std::string path = path_in(directory.empty() ? "." : directory.string());
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  if (none || bytes > static_cast<uintmax_t>(kMostBytes)) return {};
  if (!std::ranges::all_of(files, [&](const std::string& file) { return directory_of(file) == directory; })) return {};
  return lines_of(read_text_file(path, ExitCode::data, kMostBytes));
}

}  // namespace lockstep
