// What the HDF5 sources share: the lock, the error check, element types.
#pragma once

#include <hdf5.h>

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/checked_size.h"
#include "lockstep/base/error.h"
#include "lockstep/io/hdf5.h"

namespace lockstep::hdf5 {

// Holds the process-wide lock. Recursive, because handles close themselves under it too. Also quiets the library's
// error printing, which is a setting per thread, and keeps it from running at exit, where it crashes after failures.
class Lock {
 public:
  Lock();

 private:
  std::unique_lock<std::recursive_mutex> held_;
};

// Whom to name and blame when a call fails.
struct Context {
  const std::string& where;
  ExitCode blame;
};

// Throws "where: cannot WHAT: the library's reasons" and clears the error stack.
[[noreturn]] void fail_call(const Context& context, std::string_view what);

// Passes a status, id or size through; negative means failure. Call with the lock held.
template <class T>
T check(T status, const Context& context, std::string_view what) {
  if (status < 0) fail_call(context, what);
  return status;
}

inline Hdf5Id check_id(hid_t id, const Context& context, std::string_view what) {
  return Hdf5Id(check(id, context, what));
}

template <class T>
hid_t memory_type() {
  if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
  if constexpr (std::is_same_v<T, int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<T, int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::is_same_v<T, uint8_t>) return H5T_NATIVE_UINT8;
}

// Elements of a shape, an empty one having 1. Shapes from files have been checked when their data set was opened.
int64_t count_elements(std::span<const int64_t> dims);

// Whether elements are integers or floating-point numbers that the library can convert: of at most 16 bytes.
bool is_number(hid_t type);

// What values from a file of so many bytes may take in memory.
int64_t most_bytes_of(int64_t file_bytes);

// The way to an object in a file, which notices external links and refuses those that may not be followed. Must stay
// where it is: its property list refers to it. Use with the lock held.
class LinkAccess {
 public:
  LinkAccess(bool stands_alone, const Context& context);
  LinkAccess(const LinkAccess&) = delete;
  LinkAccess& operator=(const LinkAccess&) = delete;

  hid_t list() const { return list_.get(); }
  bool left_file() const { return left_file_; }
  bool refused() const { return !refusal_.empty(); }
  // Passes `status` through; a refused link and every other failure are errors that say what could not be done.
  template <class T>
  T check(T status, const Context& context, const std::string& what) const {
    if (status < 0 && !refusal_.empty()) fail_refused(context, what);
    return hdf5::check(status, context, what);
  }

 private:
  static herr_t follow(const char* parent, const char* group, const char* child, const char* object, unsigned* flags,
                       hid_t access, void* self);
  [[noreturn]] void fail_refused(const Context& context, const std::string& what) const;

  bool stands_alone_;
  bool left_file_ = false;
  std::string refusal_;
  Hdf5Id list_;
};

// Throws when an external link on the way to `path` is damaged: the library would read behind the end of its text.
void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context);

// Where the library looks for the file `named`, which the file `parent` refers to: beside the parent, which may be a
// symbolic link, and at the name itself. Of an absolute name, only the last part is looked for beside the parent.
std::vector<std::string> paths_of(const std::string& parent, const std::string& named);

// Whether one of them is a pipe, a device or a directory: the library would wait for it or read without end.
bool is_special(const std::string& parent, const std::string& named);

// Memory for `count` values of a file, all zero. An error that names it when it is more than `most_bytes`, or cannot be
// had.
template <class T>
std::vector<T> allocate(int64_t count, int64_t most_bytes, const Context& context) {
  const auto bytes = checked_product(std::array{count, static_cast<int64_t>(sizeof(T))});
  if (!bytes || *bytes > most_bytes) {
    fail(context.blame, "{}: declares {} values, more than the {} bytes that a file of this size may take in memory",
         context.where, count, most_bytes);
  }
  try {
    return std::vector<T>(static_cast<size_t>(count));
  } catch (const std::bad_alloc&) {
    fail(context.blame, "{}: its {} values need {} bytes of memory, which cannot be had", context.where, count, *bytes);
  }
}

// Rows of the first dimension in one transfer: at least one, else as many as fit a few MiB, so that the lock is
// never held long.
int64_t rows_per_piece(std::span<const int64_t> dims, size_t element_bytes);

// The strings of a data set or attribute, by `transfer(memory type, transfer list, buffer)`, which reads its `count`
// strings.
struct StringsOf {
  hid_t type = -1;  // as stored
  hid_t space = -1;
  int64_t count = 0;
  int64_t most_bytes = 0;  // of memory
};
using StringTransfer = std::function<herr_t(hid_t type, hid_t list, void* to)>;
std::vector<std::string> read_strings(const StringsOf& source, const Context& context, const StringTransfer& transfer);

}  // namespace lockstep::hdf5
