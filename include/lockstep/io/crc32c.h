// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// The processor's own instruction where it has one, else tables.
uint32_t crc32c(std::span<const std::byte> data);

// The table form, whatever the processor.
uint32_t crc32c_portable(std::span<const std::byte> data);

// TFRecord stores checksums rotated and shifted, so that a checksum over data holding checksums stays meaningful.
constexpr uint32_t mask_crc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace lockstep
