// The user block of a checkpoint. Read as it is, and with the right checksum in its last line.
#include "checkpoint/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/io/crc64.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

void parse(Bytes block, int64_t file_bytes) {
  expect_answer([&] {
    const CheckpointHeader header = parse_header(block.first(std::min(block.size(), kUserBlockBytes)), file_bytes, "x");
    require_law(header.file_bytes == file_bytes, "a header's length is the file's");
    require_law(header.step >= 0, "a step is not negative");
  });
}

// The lines up to the last one, and the one that they ought to be followed by.
std::vector<std::byte> with_checksum(Bytes input) {
  std::string text(as_text(input));
  const size_t at = text.find("\nheader ");
  if (at == std::string::npos) return {input.begin(), input.end()};
  text.resize(at + 1);
  text += fmt::format("header {:016x}\n", crc64(std::as_bytes(std::span(text))));
  text.resize(kUserBlockBytes, '\0');
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void checkpoint_header(Bytes input) {
  constexpr int64_t kFileBytes = 4096;
  parse(input, static_cast<int64_t>(input.size()));
  parse(input, kFileBytes);
  parse(with_checksum(input), kFileBytes);
}

}  // namespace lockstep::fuzz
