// The offset of each record of a TFRecord file, found by reading the records' headers and kept in a cache directory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/source/input_file.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {

// A record is: length (u64), masked CRC-32C of the length (u32), the data, masked CRC-32C of the data (u32); all
// little-endian.
inline constexpr int64_t kRecordHeaderBytes = 12;
inline constexpr int64_t kRecordFooterBytes = 4;

struct RecordIndex {
  std::vector<int64_t> bounds = {0};  // record i occupies [bounds[i], bounds[i+1]) of the file
  int64_t records() const { return static_cast<int64_t>(bounds.size()) - 1; }
};

// Whether `index` can be that of a file of `file_bytes`: adjacent records from its first byte to its last, each with
// room for its header and footer.
bool fits(const RecordIndex& index, int64_t file_bytes);

// Returns the length of the record with this header; nullopt if the header's checksum is wrong.
std::optional<uint64_t> parse_record_header(std::span<const std::byte, kRecordHeaderBytes> header);

// Reads every header. A wrong length checksum or a truncated record throws Error(data) naming file, record and offset;
// under BadRecords::skip it ends the file there with a warning, because no later record can be found.
RecordIndex scan_records(const InputFile& file, BadRecords policy);

// Calls scan_records() through the cache: uses an index of the same path, size and modification time in
// `cache_directory` (empty: no cache). If that is missing, stale, damaged or cannot be of this file, scans the file and
// writes the index. Files small enough to scan at once are not cached. A directory that cannot be written causes a
// warning.
RecordIndex load_record_index(const InputFile& file, BadRecords policy, const std::string& cache_directory);

}  // namespace lockstep
