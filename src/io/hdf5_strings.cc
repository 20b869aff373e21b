#include <cstdlib>

#include "io/hdf5_internal.h"

namespace lockstep::hdf5 {
namespace {

// Allocates memory for strings of variable length, up to a limit. Many elements may refer to one long string of the
// file, so the size of the file is no limit.
class StringMemory {
 public:
  explicit StringMemory(int64_t most_bytes) : left_(most_bytes) {}

  Hdf5Id transfer_list(const Context& context) {
    Hdf5Id list = check_id(H5Pcreate(H5P_DATASET_XFER), context, "make a transfer list");
    check(H5Pset_vlen_mem_manager(list.get(), take, this, give_back, nullptr), context, "bound the strings");
    return list;
  }
  bool exhausted() const { return exhausted_; }

 private:
  static void* take(size_t bytes, void* self) {
    auto& memory = *static_cast<StringMemory*>(self);
    if (memory.left_ < 0 || bytes > static_cast<size_t>(memory.left_)) {
      memory.exhausted_ = true;
      return nullptr;
    }
    memory.left_ -= static_cast<int64_t>(bytes);
    return std::malloc(bytes);
  }
  static void give_back(void* data, void*) { std::free(data); }

  int64_t left_;
  bool exhausted_ = false;
};

// Owns the strings to which the library sets these pointers.
class StringPointers {
 public:
  explicit StringPointers(std::vector<char*> pointers) : pointers_(std::move(pointers)) {}
  StringPointers(const StringPointers&) = delete;
  StringPointers& operator=(const StringPointers&) = delete;
  ~StringPointers() {
    for (char* text : pointers_) std::free(text);
  }
  std::vector<char*>& get() { return pointers_; }

 private:
  std::vector<char*> pointers_;
};

std::vector<std::string> read_variable(const StringsOf& source, hid_t memory_type, const Context& context,
                                       const StringTransfer& transfer) {
  StringMemory memory(source.most_bytes);
  const Hdf5Id list = memory.transfer_list(context);
  StringPointers pointers(allocate<char*>(source.count, source.most_bytes, context));
  const herr_t status = transfer(memory_type, list.get(), pointers.get().data());
  if (status < 0 && memory.exhausted()) {
    H5Eclear2(H5E_DEFAULT);
    fail(context.blame, "{}: its strings are longer than the {} bytes that a file of this size may take in memory",
         context.where, source.most_bytes);
  }
  check(status, context, "read the strings");
  std::vector<std::string> strings;
  for (const char* text : pointers.get()) strings.emplace_back(text ? text : "");
  return strings;
}

std::vector<std::string> read_fixed(const StringsOf& source, hid_t memory_type, const Context& context,
                                    const StringTransfer& transfer) {
  const size_t length = H5Tget_size(source.type) + 1;
  check(H5Tset_size(memory_type, length), context, "set the string length");
  const auto bytes = checked_product(std::array{source.count, static_cast<int64_t>(length)});
  if (!bytes) fail(context.blame, "{}: declares {} strings of {} bytes", context.where, source.count, length);
  auto text = allocate<char>(*bytes, source.most_bytes, context);
  check(transfer(memory_type, H5P_DEFAULT, text.data()), context, "read the strings");
  std::vector<std::string> strings;
  for (int64_t i = 0; i < source.count; ++i) strings.emplace_back(text.data() + static_cast<size_t>(i) * length);
  return strings;
}

}  // namespace

std::vector<std::string> read_strings(const StringsOf& source, const Context& context, const StringTransfer& transfer) {
  const Hdf5Id memory_type = check_id(H5Tcopy(H5T_C_S1), context, "make a string type");
  check(H5Tset_cset(memory_type.get(), H5Tget_cset(source.type)), context, "set the character set");
  if (check(H5Tis_variable_str(source.type), context, "ask for the string type") == 0) {
    return read_fixed(source, memory_type.get(), context, transfer);
  }
  check(H5Tset_size(memory_type.get(), H5T_VARIABLE), context, "set the string length");
  return read_variable(source, memory_type.get(), context, transfer);
}

}  // namespace lockstep::hdf5
