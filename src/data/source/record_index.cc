#include "data/source/record_index.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>

#include "data/source/file_kind.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/random.h"
#include "lockstep/io/crc32c.h"

namespace lockstep {
namespace {

constexpr int64_t kCacheFromBytes = 1 << 20;
constexpr int64_t kLeastRecordBytes = kRecordHeaderBytes + kRecordFooterBytes;

// The cache file has this head, the path, the bounds, and the CRC-32C of all these.
struct CacheHead {
  std::array<char, 8> magic = {'L', 'S', 'R', 'I', 'D', 'X', '0', '1'};
  int64_t file_bytes = 0;
  int64_t modified_ns = 0;
  int64_t path_bytes = 0;
  int64_t bounds = 0;
};
static_assert(sizeof(CacheHead) == 40);

std::string cache_path(const InputFile& file, const std::string& directory) {
  return fmt::format("{}/{:016x}.index", directory, fnv1a64(std::filesystem::absolute(file.path()).native()));
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

// Returns the contents of the cache file, or nothing if it does not exist or is too long to belong to `file`.
std::optional<std::string> read_cache_file(const InputFile& file, const std::string& cached) {
  try {
    const FileDescriptor stored = open_regular_file(cached, ExitCode::data);
    const int64_t bytes = file_size(stored, cached, ExitCode::data);
    const int64_t most_bounds = file.size_bytes() / kLeastRecordBytes + 1;
    const int64_t other_bytes = static_cast<int64_t>(sizeof(CacheHead)) + PATH_MAX + 4;
    if (bytes > most_bounds * static_cast<int64_t>(sizeof(int64_t)) + other_bytes) return std::nullopt;
    std::string text(static_cast<size_t>(bytes), '\0');
    pread_all(stored, std::as_writable_bytes(std::span(text)), {.path = cached, .blame = ExitCode::data});
    return text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<RecordIndex> read_cached(const InputFile& file, const std::string& cached) {
  const std::optional<std::string> stored = read_cache_file(file, cached);
  if (!stored) return std::nullopt;
  const std::string& text = *stored;
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
      body.size() < bounds_at || (body.size() - bounds_at) % sizeof(int64_t) != 0 ||
      static_cast<size_t>(head.bounds) != (body.size() - bounds_at) / sizeof(int64_t) ||
      body.substr(sizeof head, path.size()) != path) {
    return std::nullopt;
  }
  RecordIndex index;
  index.bounds.resize((body.size() - bounds_at) / sizeof(int64_t));
  std::memcpy(index.bounds.data(), body.data() + bounds_at, index.bounds.size() * sizeof(int64_t));
  if (!fits(index, file.size_bytes())) return std::nullopt;
  return index;
}

// Other ranks read the old or the complete new index. The file is not synced: a data set may have a thousand indexes,
// and one that is lost in a crash is rebuilt.
void write_cached(const std::string& cached, const std::string& text) {
  const std::string directory = parent_directory(cached);
  try {
    make_directories(directory, ExitCode::data);
    write_file_atomically(cached, std::as_bytes(std::span(text)), {.blame = ExitCode::data, .flush = false});
  } catch (const Error& error) {
    if (log_rank() > 0) return;  // usually no rank can write it; one warning is enough
    log_warning("record indexes cannot be kept in {} (every start scans the data again): {}", directory, error.what());
  }
}

// Describes a file whose first record is wrong.
std::string name_other_file(const InputFile& file) {
  const std::string kind = describe_other_kind(file, "a TFRecord file");
  if (!kind.empty()) return kind;
  return "the checksum of its length is wrong: the file is damaged, or no TFRecord file";
}

// Returns what is wrong with the record at `offset`, or nothing if it is complete; `end` is then set to its end.
std::string examine_record(const InputFile& file, int64_t offset, int64_t& end) {
  const int64_t left = file.size_bytes() - offset;
  if (left < kRecordHeaderBytes) return fmt::format("the file is cut off inside its header ({} bytes left)", left);
  std::array<std::byte, kRecordHeaderBytes> header = {};
  file.read(offset, header);
  const std::optional<uint64_t> length = parse_record_header(header);
  if (!length) {
    return offset == 0 ? name_other_file(file) : "the checksum of its length is wrong";
  }
  const auto room = static_cast<uint64_t>(left - kRecordHeaderBytes);
  if (room < kRecordFooterBytes || *length > room - kRecordFooterBytes) {
    return fmt::format("the file is cut off: {} bytes of data announced, {} bytes left", *length, room);
  }
  end = offset + kRecordHeaderBytes + static_cast<int64_t>(*length) + kRecordFooterBytes;
  return {};
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

bool fits(const RecordIndex& index, int64_t file_bytes) {
  const std::vector<int64_t>& bounds = index.bounds;
  if (bounds.empty() || bounds.front() != 0 || bounds.back() != file_bytes) return false;
  // The difference cannot overflow, because the bounds start at 0 and ascend.
  return std::ranges::adjacent_find(bounds, [](int64_t begin, int64_t end) {
           return end < begin || end - begin < kLeastRecordBytes;
         }) == bounds.end();
}

RecordIndex scan_records(const InputFile& file, BadRecords policy) {
  RecordIndex index;
  const bool warns = log_rank() == 0;  // all ranks see the same files; one warning is enough
  if (warns && file.size_bytes() == 0) log_warning("{}: is empty (0 records)", file.path());
  while (index.bounds.back() < file.size_bytes()) {
    const int64_t offset = index.bounds.back();
    int64_t end = 0;
    const std::string wrong = examine_record(file, offset, end);
    if (wrong.empty()) {
      index.bounds.push_back(end);
      continue;
    }
    if (policy == BadRecords::fail) {
      fail(ExitCode::data, "{}: record {} (offset {}): {}", printable(file.path(), PATH_MAX), index.records(), offset,
           wrong);
    }
    if (warns) {
      log_warning("{}: record {} (offset {}): {}; the rest of the file is left out", file.path(), index.records(),
                  offset, wrong);
    }
    break;
  }
  return index;
}

RecordIndex load_record_index(const InputFile& file, BadRecords policy, const std::string& cache_directory) {
  if (cache_directory.empty() || file.size_bytes() < kCacheFromBytes) return scan_records(file, policy);
  const std::string cached = cache_path(file, cache_directory);
  if (std::optional<RecordIndex> index = read_cached(file, cached)) return *std::move(index);
  RecordIndex index = scan_records(file, policy);
  const bool whole = index.bounds.back() == file.size_bytes();
  if (whole) write_cached(cached, serialize(file, index));
  return index;
}

}  // namespace lockstep
