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
// Rank 0 calls it and broadcasts the result, so that every rank sees the same data set in the same order. Throws
// Error(data) naming a pattern that matches nothing, Error(config) for an unknown format.
std::vector<std::string> list_inputs(std::string_view format, const std::vector<std::string>& patterns);

// Opens the data set. Throws Error(data) if an input cannot be read or there are no samples.
std::unique_ptr<DataSource> open_data_source(const DataSourceOptions& options);

// Returns the images that `paths` name, in this order: files of any name, and the images in and below directories,
// sorted. Hidden and linked directories inside are skipped. Throws Error(data) naming a directory that cannot be
// listed, or has no image.
std::vector<std::string> list_images(const std::vector<std::string>& paths);

// Opens these JPEG and PNG files as samples of label 0, in this order. A file that is not an image is a bad record.
std::unique_ptr<DataSource> open_images(const std::vector<std::string>& files);

// The directory of record indexes: $LOCKSTEP_CACHE, otherwise $XDG_CACHE_HOME/lockstep, otherwise ~/.cache/lockstep;
// empty if none of the three variables is set (then nothing is cached).
std::string default_cache_directory();

}  // namespace lockstep
