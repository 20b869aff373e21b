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

// The images that `paths` name, in this order: files whatever their names, and of directories the images in and below
// them, sorted. Hidden directories and linked ones inside are passed over. Throws Error(data) naming a directory that
// cannot be listed, or has no image.
std::vector<std::string> list_images(const std::vector<std::string>& paths);

// Opens these JPEG and PNG files as samples of label 0, in this order. One that is no image is a bad record.
std::unique_ptr<DataSource> open_images(const std::vector<std::string>& files);

// Where record indexes are kept: $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep; empty when
// none of the three variables is set (then nothing is cached).
std::string default_cache_directory();

}  // namespace lockstep
