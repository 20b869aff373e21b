// Caches the most recently used decoded rows of chunks, for all data sets of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::hdf5 {

// Holds at most kMostBytes and kMostEntries, or a single larger entry, because a chunk can only be decoded as a whole.
// Thread-safe.
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

  Bytes find(const Key& key);  // null if it is not cached
  void add(const Key& key, Bytes bytes);
  void forget(const void* reader);
  size_t bytes() const;

 private:
  struct Entry {
    Key key;
    Bytes bytes;
  };
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used one first
  std::map<Key, std::list<Entry>::iterator> index_;
  size_t total_ = 0;
};

}  // namespace lockstep::hdf5
