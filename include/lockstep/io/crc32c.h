// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Uses the processor's own instruction if it has one, otherwise tables.
uint32_t crc32c(std::span<const std::byte> data);

// Uses tables on every processor.
uint32_t crc32c_portable(std::span<const std::byte> data);

// TFRecord stores checksums rotated and shifted, so that a checksum over data holding checksums stays meaningful.
constexpr uint32_t mask_crc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

// Appends `data` with its length and checksums to the content of a TFRecord file.
void append_tfrecord(std::string_view data, std::string& file);

}  // namespace lockstep
