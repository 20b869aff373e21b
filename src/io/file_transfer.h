// Reads and writes all bytes in spite of short transfers and signals.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// The bytes of one system call: few enough that it does not hold the lock of an inode for long.
inline constexpr size_t kPieceBytes = size_t{8} << 20;

// The mode of new files, before the umask applies.
inline constexpr mode_t kNewFileMode = 0666;

// Writes all of `bytes`. Returns 0, or the errno of the call that failed.
int try_write(int descriptor, std::span<const std::byte> bytes);

// Returns the bytes read before the end of the file; -1 with errno on failure.
int64_t try_pread(int descriptor, std::span<std::byte> to, int64_t offset);

}  // namespace lockstep
