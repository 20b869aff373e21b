#include "observe/bad_records.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Parses the number at the front of `text` and removes it together with the space that follows.
int64_t take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(status == std::errc() && end < text.data() + text.size() && *end == ' ', "notes of bad records are garbled");
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

}  // namespace

std::string encode_bad_records(std::span<const BadRecordNote> notes) {
  std::string text;
  for (const BadRecordNote& note : notes) text += fmt::format("{} {} {}", note.index, note.times, note.message) + '\0';
  return text;
}

std::vector<BadRecordNote> merge_bad_records(std::span<const std::string> encoded) {
  std::map<int64_t, BadRecordNote> merged;
  for (std::string_view text : encoded) {
    while (!text.empty()) {
      const int64_t index = take_number(text), times = take_number(text);
      const size_t end = text.find('\0');
      require(end != std::string_view::npos, "notes of bad records are cut off");
      BadRecordNote& note = merged[index];
      note.index = index;
      note.times += times;
      note.message = text.substr(0, end);
      text.remove_prefix(end + 1);
    }
  }
  std::vector<BadRecordNote> notes;
  for (auto& [index, note] : merged) notes.push_back(std::move(note));
  return notes;
}

}  // namespace lockstep
