// libjpeg reports errors by calling a function that must not return. It jumps back to the setjmp of the method that
// called the library; such methods own nothing, so no destructor is jumped over.
#pragma once

#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE without including it

#include <jpeglib.h>  // NOLINT: must follow cstdio

namespace lockstep {

struct JpegErrors {
  jpeg_error_mgr base;  // first, so that the library's pointer to it is one to the whole
  std::jmp_buf escape;
  std::array<char, JMSG_LENGTH_MAX> message;
  bool data_missing;         // set by the reader: a scan's data ended before its last block
  bool file_ended;           // set by the reader: the library looked for more bytes than there are
  unsigned components_seen;  // set by the reader: a bit for each component that a scan had
};

inline JpegErrors& errors_of(j_common_ptr info) { return *reinterpret_cast<JpegErrors*>(info->err); }

[[noreturn]] inline void jump_out(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  info->err->format_message(info, errors.message.data());
  std::longjmp(errors.escape, 1);
}

}  // namespace lockstep
