// Decoded rows of chunks, of all data sets together: those that samples were read from last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::hdf5 {

// Holds at most kMostBytes in kMostEntries, or one entry that is larger: a chunk has to be decoded whole for the least
// part of it. Any thread.
class ChunkCache {
 public:
  static constexpr size_t kMostBytes = size_t{256} << 20;
  static constexpr size_t kMostEntries = size_t{1} << 18;  // bounds the memory of the bookkeeping of tiny chunks
  struct Key {
    const void* reader = nullptr;
    int64_t type = -1;  // hid_t of the elements in memory
    int64_t row = 0;    // in chunks
    auto operator<=>(const Key&) const = default;
  };
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  static ChunkCache& instance();

  Bytes find(const Key& key);  // null: it is not there
  void add(const Key& key, Bytes bytes);
  void forget(const void* reader);
  size_t bytes() const;

 private:
  struct Entry {
    Key key;
    Bytes bytes;
  };
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the one used last stands first
  std::map<Key, std::list<Entry>::iterator> index_;
  size_t total_ = 0;
};

}  // namespace lockstep::hdf5
