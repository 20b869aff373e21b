#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// HDF5's Fletcher32 filter: Fletcher's checksum over big-endian 16-bit words; an odd last byte is the high half of a
// word. HDF5 stores it little-endian after the chunk. With our own function, chunks can be written without the library,
// which handles single elements.
uint32_t hdf5_fletcher32(std::span<const std::byte> bytes);

}  // namespace lockstep
