// A TFRecord file: its framing, and the records through the data sources. Read as it is, and with right checksums.
#include <algorithm>
#include <cstring>
#include <vector>

#include "data/source/record_index.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/io/crc32c.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t);
constexpr int64_t kRecordsRead = 64;

void put_checksum(std::vector<std::byte>& file, size_t begin, size_t bytes) {
  const uint32_t masked = mask_crc32c(crc32c(std::span(file).subspan(begin, bytes)));
  std::memcpy(file.data() + begin + bytes, &masked, sizeof masked);
}

// The file with the checksums that its lengths and data ought to have.
std::vector<std::byte> with_checksums(Bytes input) {
  std::vector<std::byte> file(input.begin(), input.end());
  size_t at = 0;
  while (file.size() - at >= kRecordHeaderBytes) {
    put_checksum(file, at, kLengthBytes);
    uint64_t length = 0;
    std::memcpy(&length, file.data() + at, kLengthBytes);
    at += kRecordHeaderBytes;
    if (file.size() - at < kRecordFooterBytes || length > file.size() - at - kRecordFooterBytes) break;
    put_checksum(file, at, static_cast<size_t>(length));
    at += static_cast<size_t>(length) + kRecordFooterBytes;
  }
  return file;
}

void read_records(const std::string& format, const std::string& path, BadRecords policy) {
  DataSourceOptions options;
  options.format = format;
  options.files = {path};
  options.bad_records = policy;
  options.cache_directory = "/proc/none";  // files of this size are not indexed on disk
  const auto source = open_data_source(options);
  Sample sample;
  for (int64_t i = 0; i < std::min(source->size(), kRecordsRead); ++i) {
    expect_answer([&] { source->read(i, sample); });
  }
}

void read_both_ways(Bytes bytes) {
  const MemoryFile file(bytes);
  for (const BadRecords policy : {BadRecords::fail, BadRecords::skip}) {
    expect_answer([&] { read_records("tfrecord", file.path(), policy); });
  }
  expect_answer([&] { read_records("sparse_tfrecord", file.path(), BadRecords::skip); });
}

}  // namespace

void tfrecord(Bytes input) {
  read_both_ways(input);
  read_both_ways(with_checksums(input));
}

}  // namespace lockstep::fuzz
