// The 512-byte user block at the start of a checkpoint. It is text, which `head -n 6` shows, and the same values always
// give the same bytes, so every other byte means damage.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {

inline constexpr size_t kUserBlockBytes = 512;  // the smallest that HDF5 allows

// Fills in the user block of an otherwise finished file.
void seal_checkpoint(std::span<std::byte> file, int64_t step);

// Parses the user block of a file with `file_bytes` bytes; `block` is shorter if the file is. Throws Error(checkpoint).
CheckpointHeader parse_header(std::span<const std::byte> block, int64_t file_bytes, const std::string& path);

}  // namespace lockstep
