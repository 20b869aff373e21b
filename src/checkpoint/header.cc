#include "checkpoint/header.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "lockstep/io/crc64.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

// The first two lines and the header's own checksum must stay the same in every later version, so that an old program
// reports a newer file as newer and not as damaged.
std::string render(const CheckpointHeader& header) {
  std::string text = fmt::format("{}\nversion {}\nstep {}\nbytes {}\ncrc64 {:016x}\n", kCheckpointFormat,
                                 header.version, header.step, header.file_bytes, header.checksum);
  text += fmt::format("header {:016x}\n", crc64(std::as_bytes(std::span(text))));
  text.resize(kUserBlockBytes, '\0');
  return text;
}

// Removes "KEY NUMBER\n" from the start of `text`. Returns false if the text starts differently.
template <class T>
bool take_line(std::string_view& text, std::string_view key, T& number, int base = 10) {
  if (!text.starts_with(key)) return false;
  text.remove_prefix(key.size());
  if (!text.starts_with(' ')) return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end == text.data() + text.size() || *end != '\n') return false;
  text.remove_prefix(end - text.data() + 1);
  return true;
}

// Returns whether there is a line "header CRC" with the checksum of all lines before it.
bool header_line_is_right(std::string_view block) {
  const size_t at = block.find("\nheader ");
  if (at == std::string_view::npos) return false;
  std::string_view line = block.substr(at + 1);
  uint64_t stored = 0;
  return take_line(line, "header", stored, 16) && stored == crc64(std::as_bytes(std::span(block.substr(0, at + 1))));
}

}  // namespace

void seal_checkpoint(std::span<std::byte> file, int64_t step) {
  require(file.size() > kUserBlockBytes, "a checkpoint of {} bytes", file.size());
  const std::string block = render({.version = kCheckpointVersion,
                                    .step = step,
                                    .file_bytes = static_cast<int64_t>(file.size()),
                                    .checksum = crc64(file.subspan(kUserBlockBytes))});
  std::memcpy(file.data(), block.data(), block.size());
}

CheckpointHeader parse_header(std::span<const std::byte> block, int64_t file_bytes, const std::string& path) {
  constexpr ExitCode kBlame = ExitCode::checkpoint;
  const std::string_view whole(reinterpret_cast<const char*>(block.data()), block.size());
  if (file_bytes == 0) fail(kBlame, "{}: empty file, no checkpoint", path);
  const std::string_view magic = kCheckpointFormat;
  if (whole.substr(0, magic.size()) != magic.substr(0, whole.size())) {
    fail(kBlame, "{}: not a Lockstep checkpoint", path);
  }
  if (whole.size() < kUserBlockBytes) fail(kBlame, "{}: truncated checkpoint, {} bytes", path, file_bytes);
  CheckpointHeader header;
  std::string_view text = whole.substr(magic.size());
  const bool starts_right =
      text.starts_with('\n') && (text.remove_prefix(1), take_line(text, "version", header.version));
  if (starts_right && header.version > kCheckpointVersion && header_line_is_right(whole)) {
    fail(kBlame, "{}: format version {} is newer than {}, the newest this program reads; use a newer Lockstep", path,
         header.version, kCheckpointVersion);
  }
  const bool parsed = starts_right && take_line(text, "step", header.step) &&
                      take_line(text, "bytes", header.file_bytes) && take_line(text, "crc64", header.checksum, 16);
  if (!parsed || render(header) != whole) fail(kBlame, "{}: damaged checkpoint, its header is wrong", path);
  if (header.step < 0) {
    fail(kBlame, "{}: damaged checkpoint, its header's step is {}, which no run can have written", path, header.step);
  }
  if (file_bytes < header.file_bytes) {
    fail(kBlame, "{}: truncated checkpoint, {} of {} bytes", path, file_bytes, header.file_bytes);
  }
  if (file_bytes > header.file_bytes) {
    fail(kBlame, "{}: damaged checkpoint, {} bytes instead of {}", path, file_bytes, header.file_bytes);
  }
  return header;
}

CheckpointHeader read_checkpoint_header(const std::string& path) {
  const FileDescriptor file = open_regular_file(path, ExitCode::checkpoint);
  const int64_t bytes = file_size(file, path, ExitCode::checkpoint);
  std::vector<std::byte> block(std::min<int64_t>(bytes, kUserBlockBytes));
  pread_all(file, block, {.path = path, .offset = 0, .blame = ExitCode::checkpoint});
  return parse_header(block, bytes, path);
}

}  // namespace lockstep
