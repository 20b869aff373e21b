// Data sets in compressed or checksummed chunks, decoded here. The library takes a chunk that decompresses to fewer
// bytes than it should for a whole one and reads beyond it; it also looks up every chunk again for every row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/hdf5_internal.h"

namespace lockstep::hdf5 {

// Elements from row `first` of the first dimension on, as `type` of `type_bytes` each, into `to`, which is whole rows.
struct RowsInMemory {
  int64_t first = 0;
  hid_t type = -1;
  size_t type_bytes = 0;
  std::span<std::byte> to;
};

// One data set. One thread at a time. Takes the lock for each chunk, and no longer than the library works on it.
class ChunkReader {
 public:
  // Nothing for a data set that is not chunked, that has no filter, or one besides shuffle, deflate and Fletcher32:
  // those the library reads. Throws for more chunks than a file of this size can have, and chunks larger than its
  // values may take in memory. Call with the lock held.
  static std::unique_ptr<ChunkReader> make(hid_t dataset, hid_t creation, const Hdf5DatasetInfo& info,
                                           const Context& context);

  ChunkReader() = default;
  ChunkReader(const ChunkReader&) = delete;  // the cache knows it by its address
  ChunkReader& operator=(const ChunkReader&) = delete;
  ~ChunkReader();

  // A row of chunks that is read in part is decoded whole, and kept as long as ChunkCache has room.
  void read(hid_t dataset, const RowsInMemory& rows, const Context& context);
  int64_t rows_together() const;  // that are decoded with any one of them

 private:
  struct Filter {
    H5Z_filter_t id;
    size_t element_bytes;  // that shuffle was given
  };
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
  std::vector<Filter> filters_;  // in the order in which they were applied
  Hdf5Id type_;                  // as stored
  size_t element_bytes_ = 0;
  size_t chunk_elements_ = 0;
  bool partial_unfiltered_ = false;  // chunks that reach beyond the array are stored without filters
  int64_t most_stored_ = 0;          // bytes of one chunk in the file
  std::vector<std::byte> fill_;      // one element as stored

  uint32_t skipped_ = 0;  // filters that the present chunk does without, a bit each
  std::vector<std::byte> bytes_, other_;
};

}  // namespace lockstep::hdf5
