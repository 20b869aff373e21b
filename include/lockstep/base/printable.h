// Text from files, made safe to print. A name in a file may hold terminal escapes, line feeds that imitate our own
// lines, or characters that reverse the direction of what follows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kPrintedBytes = 256;

// `text` as UTF-8 without any byte that a terminal acts on: control characters (C0, DEL, C1, line feed and tab among
// them), bidirectional controls, line and paragraph separators, and bytes that are not UTF-8 become \xNN for each
// byte. A text of more than `limit` bytes is cut at a character, and "... (N bytes)" tells its whole length.
std::string printable(std::string_view text, size_t limit = kPrintedBytes);

// Whole messages of our own, which may quote foreign text: as printable(), but line feeds and tabs stay and nothing is
// cut. The last guard before a terminal. It cannot tell a line feed of ours from one inside a name, so names go through
// printable() where they are put into a message.
std::string printable_lines(std::string_view text);

}  // namespace lockstep
