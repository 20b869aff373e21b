// Decodes data sets of compressed or checksummed chunks. The library itself would accept a chunk that decompresses to
// too few bytes and read beyond it, and it looks up every chunk again for every row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/hdf5_internal.h"

namespace lockstep::hdf5 {

// A filter that the chunks of a data set pass through when they are written.
struct Filter {
  H5Z_filter_t id = H5Z_FILTER_NONE;
  unsigned value = 0;  // its first parameter; for shuffle, the bytes of an element
  std::string name;
};
// Returns the filters in the order in which they are applied. Called with the lock held.
std::vector<Filter> filters_of(hid_t creation, const Context& context);

// Where to put whole rows, from row `first` of the first dimension on, as elements of `type` with `type_bytes` bytes.
struct RowsInMemory {
  int64_t first = 0;
  hid_t type = -1;
  size_t type_bytes = 0;
  std::span<std::byte> to;
};

// Reads one data set; not thread-safe. It holds the lock only while the library works on a chunk.
class ChunkReader {
 public:
  // Returns nothing if the library must read the data set: without chunks, without filters, or with other filters than
  // shuffle, deflate and Fletcher32. Throws if there are more chunks than a file of this size can have, or if a chunk
  // is larger than its values may be in memory. Called with the lock held.
  static std::unique_ptr<ChunkReader> make(hid_t dataset, hid_t creation, const Hdf5DatasetInfo& info,
                                           const Context& context);

  ChunkReader() = default;
  ChunkReader(const ChunkReader&) = delete;  // its address is the key in the cache
  ChunkReader& operator=(const ChunkReader&) = delete;
  ~ChunkReader();

  // Decodes whole rows of chunks and keeps them in the ChunkCache.
  void read(hid_t dataset, const RowsInMemory& rows, const Context& context);
  int64_t rows_together() const;  // number of rows that are decoded together

 private:
  using Place = std::vector<hsize_t>;

  void read_chunk_row(hid_t dataset, const RowsInMemory& rows, int64_t chunk_row, const Context& context);
  void read_chunk(hid_t dataset, const RowsInMemory& rows, const Place& at, const Context& context);
  bool is_partial(const Place& at) const;
  bool fetch(hid_t dataset, const Place& at, const Context& context);
  void decode(const Context& context);
  void undo(const Filter& filter, size_t most_bytes, const Context& context);
  void fill();
  void convert(const RowsInMemory& rows, const Context& context);
  void place(const RowsInMemory& rows, const Place& at) const;

  std::vector<int64_t> dims_, chunk_;
  std::vector<Filter> filters_;
  Hdf5Id type_;  // as stored
  size_t element_bytes_ = 0;
  size_t chunk_elements_ = 0;
  bool partial_unfiltered_ = false;  // chunks that extend beyond the array are stored without filters
  int64_t most_stored_ = 0;          // bytes of one chunk in the file
  std::vector<std::byte> fill_;      // one element as stored

  uint32_t skipped_ = 0;  // bit mask of the filters that the current chunk skips
  std::vector<std::byte> bytes_, other_;
};

}  // namespace lockstep::hdf5
