#include "lockstep/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not start with a character of UTF-8
};

// Returns the first character of `text` by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || surrogate || code > 0x10ffff) return {};
  return {code, bytes};
}

bool acts_on_terminal(uint32_t code) {
  const auto in = [&](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  return code < 0x20 || in(0x7f, 0x9f) || code == 0x061c || in(0x200b, 0x200f) || in(0x2028, 0x202e) ||
         in(0x2060, 0x206f) || code == 0xfeff || in(0xfff9, 0xfffb) || in(0xe0000, 0xe007f);
}

constexpr size_t kNoLimit = static_cast<size_t>(-1);

// Implements printable() and printable_lines(); characters of `kept` stay although a terminal acts on them.
std::string escape(std::string_view text, size_t limit, std::string_view kept) {
  std::string out;
  out.reserve(std::min(text.size(), limit));
  size_t done = 0;
  while (done < text.size()) {
    const Character character = first_character(text.substr(done));
    const size_t bytes = character.bytes > 0 ? character.bytes : 1;
    if (done + bytes > limit) return fmt::format("{}... ({} bytes)", out, text.size());
    const bool stays = kept.find(text[done]) != std::string_view::npos;
    if (stays || (character.bytes > 0 && !acts_on_terminal(character.code))) {
      out += text.substr(done, bytes);
    } else {
      for (const char c : text.substr(done, bytes)) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    done += bytes;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, size_t limit) { return escape(text, limit, {}); }

std::string printable_lines(std::string_view text) { return escape(text, kNoLimit, "\n\t"); }

}  // namespace lockstep
