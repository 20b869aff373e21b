#include "lockstep/train/class_names.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

// Bytes of the character that `text` begins with; 0: it is none of UTF-8 (RFC 3629), or is not to be printed.
size_t character_bytes(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return first >= 0x20 && first != 0x7f && first != '\\' ? 1 : 0;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  const std::string_view rest = text.substr(1, bytes - 1);
  if (!std::ranges::all_of(rest, is_continuation)) return 0;
  const auto second = static_cast<uint8_t>(rest[0]);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second > 0x9f;
  const bool too_large = first == 0xf4 && second > 0x8f;
  return overlong || surrogate || too_large ? 0 : bytes;
}

}  // namespace

std::string printable_name(std::string_view name) {
  std::string printable;
  while (!name.empty()) {
    const size_t bytes = character_bytes(name);
    if (bytes == 0) printable += fmt::format("\\x{:02x}", static_cast<uint8_t>(name[0]));
    printable += name.substr(0, bytes);
    name.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return printable;
}

std::vector<std::string> name_outputs(const std::vector<std::string>& label_names, int64_t label_offset) {
  std::vector<std::string> outputs;
  if (label_names.empty()) return outputs;
  outputs.resize(static_cast<size_t>(std::max<int64_t>(label_offset, 0)));
  const auto skipped = static_cast<ptrdiff_t>(std::clamp<int64_t>(-label_offset, 0, std::ssize(label_names)));
  std::transform(label_names.begin() + skipped, label_names.end(), std::back_inserter(outputs), printable_name);
  return outputs;
}

void require_same_classes(const NamedClasses& expected, const NamedClasses& found) {
  const auto [one, other] = std::ranges::mismatch(expected.names, found.names);
  if (one == expected.names.end() || other == found.names.end()) return;
  fail(ExitCode::data,
       "class {} is '{}' in {} and '{}' in {}: the labels would mean other classes. Give both the same class folders "
       "(an empty one keeps its class's number)",
       one - expected.names.begin(), *one, expected.where, *other, found.where);
}

}  // namespace lockstep
