// Transfers that survive short ones and signals.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// Bounds the time one system call holds an inode lock and keeps progress visible to tools that watch the process.
inline constexpr size_t kPieceBytes = size_t{8} << 20;

// Of every file that is made here: the umask takes from it.
inline constexpr mode_t kNewFileMode = 0666;

// Writes all of `bytes`. Returns 0, or the errno of the call that failed.
int try_write(int descriptor, std::span<const std::byte> bytes);

// Returns the bytes read before the end of the file; -1 with errno on failure.
int64_t try_pread(int descriptor, std::span<std::byte> to, int64_t offset);

}  // namespace lockstep
