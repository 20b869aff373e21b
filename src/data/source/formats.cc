#include "lockstep/data/source/formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "data/source/format_sources.h"
#include "lockstep/base/counted.h"
#include "lockstep/io/path_pattern.h"

namespace lockstep {
namespace {

using Paths = std::vector<std::string>;

// Gives advice for a pattern that matches nothing although a file of this name may exist.
std::string no_match_hint(const std::string& pattern) {
  if (const std::string hidden = unreadable_directory(pattern); !hidden.empty()) return "; " + hidden;
  return pattern.find_first_of("[{") == std::string::npos
             ? ""
             : "; brackets and braces that belong to a name are written with a backslash before them";
}

Paths list_files(const Paths& patterns) {
  Paths files;
  for (const std::string& pattern : patterns) {
    const Paths found = matching_paths(pattern);
    size_t taken = 0;
    for (const std::string& path : found) {
      if (is_directory(path)) continue;
      files.push_back(path);
      ++taken;
    }
    if (taken == 0) {
      const std::string hint =
          found.empty() ? no_match_hint(pattern) : "; it names a directory: add a file pattern, such as /train-*";
      fail(ExitCode::data, "data pattern '{}' matches no file (0 files seen){}", pattern, hint);
    }
  }
  return files;
}

Paths list_directories(const Paths& patterns) {
  Paths roots;
  for (const std::string& pattern : patterns) {
    const Paths found = matching_paths(pattern);
    size_t taken = 0;
    for (const std::string& path : found) {
      if (!is_directory(path)) continue;
      roots.push_back(path);
      ++taken;
    }
    if (taken == 0)
      fail(ExitCode::data, "data pattern '{}' matches no directory ({} files seen){}", pattern, found.size(),
           found.empty() ? no_match_hint(pattern) : "");
  }
  return list_image_folders(roots);
}

Paths list_nothing(const Paths&) { return {}; }

// A new format is one row here.
struct DataFormat {
  std::string_view name;
  Paths (*list)(const Paths& patterns);
  std::unique_ptr<DataSource> (*open)(const DataSourceOptions& options);
};
constexpr std::array kFormats = {
    DataFormat{"tfrecord", list_files, open_tfrecord},
    DataFormat{"folder", list_directories, open_folder},
    DataFormat{"cifar10", list_files, open_cifar10},
    DataFormat{"cifar100", list_files, open_cifar100},
    DataFormat{"hdf5", list_files, open_hdf5},
    DataFormat{"sparse_tfrecord", list_files, open_sparse_tfrecord},
    DataFormat{"synthetic", list_nothing, open_synthetic},
};

const DataFormat& find_format(std::string_view name) {
  for (const DataFormat& format : kFormats) {
    if (format.name == name) return format;
  }
  fail(ExitCode::config, "data.format: unknown format '{}'; known are {}", name, fmt::join(data_format_names(), ", "));
}

}  // namespace

std::vector<std::string_view> data_format_names() {
  std::vector<std::string_view> names;
  for (const DataFormat& format : kFormats) names.push_back(format.name);
  return names;
}

std::vector<std::string> list_inputs(std::string_view format, const std::vector<std::string>& patterns) {
  Paths paths = find_format(format).list(patterns);
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::unique_ptr<DataSource> open_data_source(const DataSourceOptions& options) {
  std::unique_ptr<DataSource> source = find_format(options.format).open(options);
  if (source->size() == 0) {
    fail(ExitCode::data, "there is no sample in the {} (format {}, first {})", counted(options.files.size(), "input"),
         options.format, options.files.empty() ? "none" : options.files.front());
  }
  // For image directories, only the classes are named, because the list contains every image.
  const auto is_class = [](const std::string& path) { return path.ends_with('/'); };
  const bool classes = std::ranges::any_of(options.files, is_class);
  for (const std::string& path : options.files) {
    if (!classes || is_class(path)) source->inputs_.push_back(path);
  }
  return source;
}

std::string default_cache_directory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string own = variable("LOCKSTEP_CACHE"); !own.empty()) return own;
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) return caches + "/lockstep";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/lockstep";
  return {};
}

}  // namespace lockstep
