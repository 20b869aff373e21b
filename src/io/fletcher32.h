#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// HDF5's Fletcher32 filter: Fletcher's checksum over big-endian 16-bit words, an odd last byte being the high half of a
// word. Stored little-endian behind the chunk. Our own, so that a chunk need not pass through the library's element
// by element machinery on its way into a file.
uint32_t hdf5_fletcher32(std::span<const std::byte> bytes);

}  // namespace lockstep
