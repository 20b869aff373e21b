// Identifies the kind of a file by its first bytes, for messages about files of the wrong kind.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "data/source/input_file.h"

namespace lockstep {

// The most bytes that name_file_kind() reads.
inline constexpr size_t kFileKindBytes = 512;

// "a GIF image", "a gzip archive", "a Git LFS pointer (the file itself was not fetched: git lfs pull)"; empty if the
// kind is not known. `beginning` is the start of the file, or all of it.
std::string_view name_file_kind(std::span<const std::byte> beginning);

// Describes a file that is not `wanted` ("an HDF5 file"): "the file is a zip archive; unpack it first", or "the file is
// a NumPy array, where an HDF5 file is needed". Empty if its kind is not known, or is the wanted one (the file is
// damaged). Throws Error(data) if it cannot be read.
std::string describe_other_kind(const InputFile& file, std::string_view wanted);

}  // namespace lockstep
