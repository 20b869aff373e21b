#include "io/hdf5_chunk_cache.h"

#include <limits>
#include <utility>

namespace lockstep::hdf5 {

ChunkCache& ChunkCache::instance() {
  static ChunkCache* cache = new ChunkCache;  // never destroyed, because data sets may close during exit
  return *cache;
}

ChunkCache::Bytes ChunkCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->bytes;
}

void ChunkCache::add(const Key& key, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  std::list<Entry> added;
  added.push_front({key, std::move(bytes)});
  if (!index_.try_emplace(key, added.begin()).second) return;
  total_ += added.front().bytes->size();
  entries_.splice(entries_.begin(), added);
  while ((total_ > kMostBytes || entries_.size() > kMostEntries) && entries_.size() > 1) {
    total_ -= entries_.back().bytes->size();
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

void ChunkCache::forget(const void* reader) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const std::lock_guard lock(mutex_);
  for (auto at = index_.lower_bound({reader, kLeast, kLeast}); at != index_.end() && at->first.reader == reader;) {
    total_ -= at->second->bytes->size();
    entries_.erase(at->second);
    at = index_.erase(at);
  }
}

size_t ChunkCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace lockstep::hdf5
