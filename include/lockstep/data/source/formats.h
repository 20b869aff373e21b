// The data formats by name: listing the input files of one, and opening it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// "tfrecord", "folder", ...: every format that can be opened.
std::vector<std::string_view> data_format_names();

// The inputs that `patterns` (paths, globs, or directories for `folder`) name, sorted by bytes and without repetition.
// Called by rank 0 alone and broadcast, so that every rank sees the same data set whatever order its file system
// lists. Throws Error(data) naming a pattern that matches nothing, Error(config) for an unknown format.
std::vector<std::string> list_inputs(std::string_view format, const std::vector<std::string>& patterns);

// Opens the data set. Throws Error(data) when an input cannot be read or there is no sample in any of them.
std::unique_ptr<DataSource> open_data_source(const DataSourceOptions& options);

// Where record indexes are kept: $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep; empty when
// none of the three variables is set (then nothing is cached).
std::string default_cache_directory();

}  // namespace lockstep
