// Tables for reflected CRCs that process several bytes at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// Entry [k][b] is the contribution of byte b followed by k zero bytes. The bits of the polynomial are reversed.
template <class T, size_t kSlices>
constexpr std::array<std::array<T, 256>, kSlices> make_crc_tables(T polynomial) {
  std::array<std::array<T, 256>, kSlices> tables{};
  for (size_t b = 0; b < 256; ++b) {
    T crc = static_cast<T>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  }
  return tables;
}

}  // namespace lockstep
