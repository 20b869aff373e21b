#include "io/hdf5_chunk_cache.h"

#include <algorithm>
#include <utility>

namespace lockstep::hdf5 {

ChunkCache& ChunkCache::instance() {
  static ChunkCache* cache = new ChunkCache;  // outlives data sets that are closed late
  return *cache;
}

ChunkCache::Bytes ChunkCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->bytes;
}

void ChunkCache::add(const Key& key, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  total_ += bytes->size();
  entries_.push_front({key, std::move(bytes)});
  while (total_ > kMostBytes && entries_.size() > 1) {
    total_ -= entries_.back().bytes->size();
    entries_.pop_back();
  }
}

void ChunkCache::forget(const void* reader) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) {
    if (entry.key.reader != reader) return false;
    total_ -= entry.bytes->size();
    return true;
  });
}

size_t ChunkCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace lockstep::hdf5
