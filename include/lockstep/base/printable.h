// Text from files, made safe to print. A name in a file may hold terminal escapes, line feeds that imitate our own
// lines, or characters that reverse the direction of the text after them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kPrintedBytes = 256;

// `text` as UTF-8 without any byte that a terminal acts on: control characters (C0, DEL, C1, line feed and tab among
// them), bidirectional controls, line and paragraph separators, and bytes that are not UTF-8 become \xNN for each byte.
// A text of more than `limit` bytes is cut at a character, and "... (N bytes)" states its whole length.
std::string printable(std::string_view text, size_t limit = kPrintedBytes);

// For whole messages, which may quote foreign text: like printable(), but keeps line feeds and tabs and cuts nothing.
// It is the last guard before a terminal. It cannot distinguish a line feed of ours from one inside a name, so names go
// through printable() when they are put into a message.
std::string printable_lines(std::string_view text);

}  // namespace lockstep
