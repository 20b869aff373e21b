#include "data/record_index.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/random.h"
#include "lockstep/io/crc32c.h"

namespace lockstep {
namespace {

constexpr int64_t kCacheFromBytes = 1 << 20;

// The cache file: this head, the path, the bounds, then the CRC-32C of all that.
struct CacheHead {
  std::array<char, 8> magic = {'L', 'S', 'R', 'I', 'D', 'X', '0', '1'};
  int64_t file_bytes = 0;
  int64_t modified_ns = 0;
  int64_t path_bytes = 0;
  int64_t bounds = 0;
};
static_assert(sizeof(CacheHead) == 40);

std::string cache_path(const InputFile& file, const std::string& folder) {
  return fmt::format("{}/{:016x}.index", folder, fnv1a64(std::filesystem::absolute(file.path()).native()));
}

void append(std::string& text, const void* data, size_t bytes) { text.append(static_cast<const char*>(data), bytes); }

uint32_t checksum(std::string_view text) { return crc32c(std::as_bytes(std::span(text.data(), text.size()))); }

std::string serialize(const InputFile& file, const RecordIndex& index) {
  const std::string path = std::filesystem::absolute(file.path()).native();
  CacheHead head;
  head.file_bytes = file.size_bytes();
  head.modified_ns = file.modified_ns();
  head.path_bytes = static_cast<int64_t>(path.size());
  head.bounds = static_cast<int64_t>(index.bounds.size());
  std::string text;
  append(text, &head, sizeof head);
  text += path;
  append(text, index.bounds.data(), index.bounds.size() * sizeof(int64_t));
  const uint32_t crc = checksum(text);
  append(text, &crc, sizeof crc);
  return text;
}

std::optional<RecordIndex> read_cached(const InputFile& file, const std::string& cached) {
  std::ifstream stream(cached, std::ios::binary);
  if (!stream) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  CacheHead head;
  if (text.size() < sizeof head + sizeof(uint32_t)) return std::nullopt;
  const std::string_view body(text.data(), text.size() - sizeof(uint32_t));
  uint32_t crc = 0;
  std::memcpy(&crc, text.data() + body.size(), sizeof crc);
  if (crc != checksum(body)) return std::nullopt;
  std::memcpy(&head, text.data(), sizeof head);
  const std::string path = std::filesystem::absolute(file.path()).native();
  const size_t bounds_at = sizeof head + path.size();
  if (head.magic != CacheHead().magic || head.file_bytes != file.size_bytes() ||
      head.modified_ns != file.modified_ns() || head.path_bytes != static_cast<int64_t>(path.size()) ||
      body.size() != bounds_at + static_cast<size_t>(head.bounds) * sizeof(int64_t) ||
      body.substr(sizeof head, path.size()) != path) {
    return std::nullopt;
  }
  RecordIndex index;
  index.bounds.resize(static_cast<size_t>(head.bounds));
  std::memcpy(index.bounds.data(), body.data() + bounds_at, index.bounds.size() * sizeof(int64_t));
  return index;
}

// Writes beside, then renames: readers on other ranks see an old index or a whole new one. No fsync, unlike
// write_file_atomically(): a cache lost in a crash is made anew, and a data set may have a thousand files.
void write_cached(const std::string& cached, const std::string& text) {
  const std::string folder = parent_directory(cached);
  std::string temporary = cached + ".XXXXXX";
  try {
    make_directories(folder, ExitCode::data);
    const FileDescriptor descriptor(::mkstemp(temporary.data()));
    if (!descriptor) fail(ExitCode::data, "{}", errno_text(errno));
    write_all(descriptor, std::as_bytes(std::span(text)), temporary, ExitCode::data);
    if (std::rename(temporary.c_str(), cached.c_str()) != 0) fail(ExitCode::data, "{}", errno_text(errno));
  } catch (const Error& error) {
    remove_file(temporary);
    log_warning("record indexes cannot be kept in {} (every start scans the data anew): {}", folder, error.what());
  }
}

}  // namespace

std::optional<uint64_t> parse_record_header(std::span<const std::byte, kRecordHeaderBytes> header) {
  uint64_t length = 0;
  uint32_t masked = 0;
  std::memcpy(&length, header.data(), sizeof length);
  std::memcpy(&masked, header.data() + sizeof length, sizeof masked);
  if (mask_crc32c(crc32c(header.first<sizeof length>())) != masked) return std::nullopt;
  return length;
}

namespace {

// What is wrong with the record that starts at `offset`; empty when it is whole, and then `end` is where it ends.
std::string examine_record(const InputFile& file, int64_t offset, int64_t& end) {
  const int64_t left = file.size_bytes() - offset;
  if (left < kRecordHeaderBytes) return fmt::format("the file is cut off inside its header ({} bytes left)", left);
  std::array<std::byte, kRecordHeaderBytes> header = {};
  file.read(offset, header);
  const std::optional<uint64_t> length = parse_record_header(header);
  if (!length) {
    if (offset == 0 && header[0] == std::byte{0x1f} && header[1] == std::byte{0x8b}) {
      return "the file is compressed with gzip; unpack it first";
    }
    return "the checksum of its length is wrong";
  }
  const auto room = static_cast<uint64_t>(left - kRecordHeaderBytes);
  if (room < kRecordFooterBytes || *length > room - kRecordFooterBytes) {
    return fmt::format("the file is cut off: {} bytes of data announced, {} bytes left", *length, room);
  }
  end = offset + kRecordHeaderBytes + static_cast<int64_t>(*length) + kRecordFooterBytes;
  return {};
}

}  // namespace

RecordIndex scan_records(const InputFile& file, BadRecords policy) {
  RecordIndex index;
  const bool speaks = log_rank() == 0;  // all ranks see the same files; one warning is enough
  if (speaks && file.size_bytes() == 0) log_warning("{}: is empty (0 records)", file.path());
  while (index.bounds.back() < file.size_bytes()) {
    const int64_t offset = index.bounds.back();
    int64_t end = 0;
    const std::string wrong = examine_record(file, offset, end);
    if (wrong.empty()) {
      index.bounds.push_back(end);
      continue;
    }
    if (policy == BadRecords::fail) {
      fail(ExitCode::data, "{}: record {} (offset {}): {}", file.path(), index.records(), offset, wrong);
    }
    if (speaks) {
      log_warning("{}: record {} (offset {}): {}; the rest of the file is left out", file.path(), index.records(),
                  offset, wrong);
    }
    break;
  }
  return index;
}

RecordIndex load_record_index(const InputFile& file, BadRecords policy, const std::string& cache_folder) {
  if (cache_folder.empty() || file.size_bytes() < kCacheFromBytes) return scan_records(file, policy);
  const std::string cached = cache_path(file, cache_folder);
  if (std::optional<RecordIndex> index = read_cached(file, cached)) return *std::move(index);
  RecordIndex index = scan_records(file, policy);
  const bool whole = index.bounds.back() == file.size_bytes();
  if (whole) write_cached(cached, serialize(file, index));
  return index;
}

}  // namespace lockstep
