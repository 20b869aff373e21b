// Shared by the HDF5 sources: the lock, error checks, element types.
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

// What to name in errors, and their exit code.
struct Context {
  const std::string& where;
  ExitCode blame;
};

// Throws "where: cannot WHAT: the library's reasons" and clears the error stack.
[[noreturn]] void fail_call(const Context& context, std::string_view what);

// Returns a status, id or size as it is, and throws if it is negative. Called with the lock held.
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

// Returns the number of elements; 1 for an empty shape. It cannot overflow, because shapes are checked when data sets
// are opened.
int64_t count_elements(std::span<const int64_t> dims);

// Returns whether elements are integers or floating-point numbers that the library can convert: of at most 16 bytes,
// with all bits inside them.
bool is_number(hid_t type);

// Returns how many bytes the values of a file may take in memory.
int64_t most_bytes_of(int64_t file_bytes);

// Controls access to an object in a file: it detects external links, and refuses them where they may not be followed.
// It must not be moved, because its property list refers to it. Used with the lock held.
class LinkAccess {
 public:
  LinkAccess(bool stands_alone, const Context& context);
  LinkAccess(const LinkAccess&) = delete;
  LinkAccess& operator=(const LinkAccess&) = delete;

  hid_t list() const { return list_.get(); }
  bool left_file() const { return left_file_; }
  bool refused() const { return !refusal_.empty(); }
  // Returns `status` as it is. Throws if a link was refused or the call failed; the message says what could not be
  // done.
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

// Throws if an external link on the way to `path` is damaged, because the library would read beyond the end of its
// text.
void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context);

// Returns the paths at which the library looks for the file `named` that the file `parent` refers to: beside the
// parent, which may be a symbolic link, and at the name itself. Of an absolute name, only the last part is used beside
// the parent.
std::vector<std::string> paths_of(const std::string& parent, const std::string& named);

// Returns whether one of the paths is a pipe, a device or a directory, which the library would read without end.
bool is_special(const std::string& parent, const std::string& named);

// Returns `count` zeros for values of a file. Throws an error that names it if they exceed `most_bytes` or cannot be
// allocated.
template <class T>
std::vector<T> allocate(int64_t count, int64_t most_bytes, const Context& context) {
  const auto bytes = checked_product(std::array{count, static_cast<int64_t>(sizeof(T))});
  if (!bytes || *bytes > most_bytes) {
    fail(context.blame, "{}: declares {} values, more than the {} bytes that a file of this size may take in memory",
         context.where, count, most_bytes);
  }
  try {
    return std::vector<T>(count);
  } catch (const std::bad_alloc&) {
    fail(context.blame, "{}: its {} values need {} bytes of memory, which cannot be had", context.where, count, *bytes);
  }
}

// Returns the number of rows in one transfer: at least one, otherwise a few MiB, so that the lock is not held for long.
int64_t rows_per_piece(std::span<const int64_t> dims, size_t element_bytes);

// Reads the `count` strings of a data set or attribute by calling transfer(memory type, transfer list, buffer).
struct StringsOf {
  hid_t type = -1;  // as stored
  hid_t space = -1;
  int64_t count = 0;
  int64_t most_bytes = 0;  // of memory
};
using StringTransfer = std::function<herr_t(hid_t type, hid_t list, void* to)>;
std::vector<std::string> read_strings(const StringsOf& source, const Context& context, const StringTransfer& transfer);

}  // namespace lockstep::hdf5
