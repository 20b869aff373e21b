// What a file is by its first bytes, for messages about files that are not what they should be.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

// The most bytes that name_file_kind() looks at.
inline constexpr size_t kFileKindBytes = 512;

// "a GIF image", "a gzip archive", "a Git LFS pointer (the file itself was not fetched: git lfs pull)"; empty when the
// kind is not known. `beginning` is the start of the file, or all of it.
std::string_view name_file_kind(std::span<const std::byte> beginning);

// Whether it is one of those that have to be unpacked first.
bool is_packed(std::span<const std::byte> beginning);

}  // namespace lockstep
