// What the HDF5 sources share: the lock, the error check, element types.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

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

// Elements of a shape, an empty one having 1.
int64_t count_elements(std::span<const int64_t> dims);

// Rows of the first dimension in one transfer: at least one, else as many as fit a few MiB, so that the lock is
// never held long.
int64_t rows_per_piece(std::span<const int64_t> dims, size_t element_bytes);

// The strings of a data set or attribute, by `transfer(memory type, buffer)`, which reads its `count` strings.
struct StringsOf {
  hid_t type = -1;  // as stored
  hid_t space = -1;
  int64_t count = 0;
};
template <class Transfer>
std::vector<std::string> read_strings(const StringsOf& source, const Context& context, const Transfer& transfer) {
  const Hdf5Id memory = check_id(H5Tcopy(H5T_C_S1), context, "make a string type");
  check(H5Tset_cset(memory.get(), H5Tget_cset(source.type)), context, "set the character set");
  std::vector<std::string> strings;
  if (check(H5Tis_variable_str(source.type), context, "ask for the string type") > 0) {
    check(H5Tset_size(memory.get(), H5T_VARIABLE), context, "set the string length");
    std::vector<char*> pointers(static_cast<size_t>(source.count), nullptr);
    check(transfer(memory.get(), pointers.data()), context, "read the strings");
    for (const char* text : pointers) strings.emplace_back(text ? text : "");
    check(H5Dvlen_reclaim(memory.get(), source.space, H5P_DEFAULT, pointers.data()), context, "free the strings");
    return strings;
  }
  const size_t length = H5Tget_size(source.type);
  check(H5Tset_size(memory.get(), length + 1), context, "set the string length");
  std::vector<char> text(static_cast<size_t>(source.count) * (length + 1));
  check(transfer(memory.get(), text.data()), context, "read the strings");
  for (int64_t i = 0; i < source.count; ++i) strings.emplace_back(text.data() + static_cast<size_t>(i) * (length + 1));
  return strings;
}

}  // namespace lockstep::hdf5
