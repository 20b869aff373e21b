#include "lockstep/data/source/formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

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

// Returns the paths that match and are directories, or those that are not. A pattern without such a path is an error.
Paths matching(const Paths& patterns, bool directories) {
  Paths paths;
  for (const std::string& pattern : patterns) {
    const Paths found = matching_paths(pattern);
    const size_t before = paths.size();
    std::ranges::copy_if(found, std::back_inserter(paths),
                         [&](const std::string& path) { return is_directory(path) == directories; });
    if (paths.size() > before) continue;
    fail(ExitCode::data, "data pattern '{}' matches no {} ({} files seen){}", pattern,
         directories ? "directory" : "file", directories ? found.size() : 0,
         found.empty() ? no_match_hint(pattern)
         : directories ? ""
                       : "; it names a directory: add a file pattern, such as /train-*");
  }
  return paths;
}

Paths list_files(const Paths& patterns) { return matching(patterns, false); }
Paths list_directories(const Paths& patterns) { return list_image_folders(matching(patterns, true)); }
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
