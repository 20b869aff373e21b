#include "io/hdf5_chunks.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "io/fletcher32.h"
#include "io/hdf5_chunk_cache.h"
#include "lockstep/base/printable.h"

namespace lockstep::hdf5 {
namespace {

constexpr size_t kChecksumBytes = sizeof(uint32_t);

int64_t chunks_along(int64_t extent, int64_t chunk) { return extent / chunk + (extent % chunk != 0 ? 1 : 0); }

std::vector<int64_t> chunk_shape(hid_t creation, size_t rank, const Context& context) {
  std::vector<hsize_t> chunk(rank);
  check(H5Pget_chunk(creation, static_cast<int>(rank), chunk.data()), context, "get the chunks");
  return {chunk.begin(), chunk.end()};
}

// A stored chunk takes more than eight bytes together with its entry in the index.
void require_credible_chunks(std::span<const int64_t> dims, std::span<const int64_t> chunk, int64_t file_bytes,
                             const Context& context) {
  constexpr int64_t kFew = 1 << 16, kLeastBytes = 8;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (chunk[i] < 1) fail(context.blame, "{}: damaged, its chunks are {}", context.where, dims_text(chunk));
    counts.push_back(chunks_along(dims[i], chunk[i]));
  }
  const std::optional<int64_t> count = checked_product(counts);
  if (count && *count <= file_bytes / kLeastBytes + kFew) return;
  fail(context.blame, "{}: its shape, {}, is of more chunks of {} than a file of {} bytes can have", context.where,
       dims_text(dims), dims_text(chunk), file_bytes);
}

// Returns whether a message of the last failure in the library contains `text`, and clears the messages.
bool failed_because(std::string_view text) {
  struct Search {
    std::string_view text;
    bool found = false;
  } search{text};
  const auto look = [](unsigned, const H5E_error2_t* entry, void* to) -> herr_t {
    auto& wanted = *static_cast<Search*>(to);
    wanted.found |= entry->desc && std::string_view(entry->desc).find(wanted.text) != std::string_view::npos;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, look, &search);
  H5Eclear2(H5E_DEFAULT);
  return search.found;
}

// Returns the stored bytes of the chunk at `at`; 0 if it was never written. The library reports that case as a failure
// that only its message distinguishes from others. The call with a clear result would search all chunks.
hsize_t stored_bytes(hid_t dataset, const std::vector<hsize_t>& at, const Context& context) {
  hsize_t bytes = 0;
  if (H5Dget_chunk_storage_size(dataset, at.data(), &bytes) >= 0) return bytes;
  if (failed_because("chunk storage is not allocated")) return 0;
  unsigned skipped = 0;
  haddr_t address = HADDR_UNDEF;
  check(H5Dget_chunk_info_by_coord(dataset, at.data(), &skipped, &address, &bytes), context, "find a chunk");
  return address == HADDR_UNDEF ? 0 : bytes;
}

}  // namespace

std::vector<Filter> filters_of(hid_t creation, const Context& context) {
  std::vector<Filter> filters(static_cast<unsigned>(check(H5Pget_nfilters(creation), context, "count the filters")));
  for (unsigned i = 0; i < filters.size(); ++i) {
    size_t value_count = 1;
    unsigned flags = 0;
    std::array<char, kPrintedBytes> name{};
    filters[i].id =
        H5Pget_filter2(creation, i, &flags, &value_count, &filters[i].value, name.size() - 1, name.data(), nullptr);
    filters[i].name = name.data();
  }
  return filters;
}

std::unique_ptr<ChunkReader> ChunkReader::make(hid_t dataset, hid_t creation, const Hdf5DatasetInfo& info,
                                               const Context& context) {
  if (H5Pget_layout(creation) != H5D_CHUNKED || info.dims.empty()) return nullptr;
  auto reader = std::make_unique<ChunkReader>();
  reader->dims_ = info.dims;
  reader->chunk_ = chunk_shape(creation, info.dims.size(), context);
  reader->most_stored_ = info.file_bytes;
  require_credible_chunks(reader->dims_, reader->chunk_, info.file_bytes, context);
  reader->filters_ = filters_of(creation, context);
  const bool known = std::ranges::all_of(reader->filters_, [](const Filter& filter) {
    return filter.id == H5Z_FILTER_SHUFFLE || filter.id == H5Z_FILTER_DEFLATE || filter.id == H5Z_FILTER_FLETCHER32;
  });
  reader->type_ = check_id(H5Dget_type(dataset), context, "get the element type");
  const bool elsewhere = info.type == Hdf5Type::string && H5Tis_variable_str(reader->type_.get()) != 0;
  if (reader->filters_.empty() || !known || elsewhere || info.type == Hdf5Type::other) return nullptr;
  reader->element_bytes_ = info.element_bytes;
  std::vector<int64_t> factors = reader->chunk_;
  factors.push_back(static_cast<int64_t>(std::max(info.element_bytes, sizeof(double))));
  const std::optional<int64_t> bytes = checked_product(factors);
  if (!bytes || *bytes > info.most_bytes) {
    fail(context.blame, "{}: its chunks, {}, take more than the {} bytes that a file of this size may", context.where,
         dims_text(reader->chunk_), info.most_bytes);
  }
  unsigned chunk_options = 0;
  check(H5Pget_chunk_opts(creation, &chunk_options), context, "get the chunk options");
  reader->partial_unfiltered_ = (chunk_options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
  reader->chunk_elements_ = static_cast<size_t>(count_elements(reader->chunk_));
  reader->fill_.resize(info.element_bytes);
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  check(H5Pfill_value_defined(creation, &defined), context, "ask for the fill value");
  if (defined == H5D_FILL_VALUE_USER_DEFINED) {
    check(H5Pget_fill_value(creation, reader->type_.get(), reader->fill_.data()), context, "get the fill value");
  }
  return reader;
}

ChunkReader::~ChunkReader() { ChunkCache::instance().forget(this); }

int64_t ChunkReader::rows_together() const { return chunk_[0]; }

void ChunkReader::read(hid_t dataset, const RowsInMemory& rows, const Context& context) {
  if (rows.to.empty()) return;
  const size_t row_bytes = static_cast<size_t>(count_elements(std::span(dims_).subspan(1))) * rows.type_bytes;
  const int64_t end = rows.first + static_cast<int64_t>(rows.to.size() / row_bytes);
  for (int64_t row = rows.first; row < end;) {
    const int64_t chunk_row = row / chunk_[0], start = chunk_row * chunk_[0];
    const int64_t stop = std::min(start + chunk_[0], dims_[0]);
    const int64_t part_end = std::min(stop, end);
    const auto part = [&](int64_t from, int64_t to) {
      return rows.to.subspan(static_cast<size_t>(from - rows.first) * row_bytes,
                             static_cast<size_t>(to - from) * row_bytes);
    };
    RowsInMemory wanted{row, rows.type, rows.type_bytes, part(row, part_end)};
    const bool whole = row == start && part_end == stop;
    if (whole) {
      read_chunk_row(dataset, wanted, chunk_row, context);
    } else {
      const ChunkCache::Key key{this, rows.type, chunk_row};
      ChunkCache::Bytes decoded = ChunkCache::instance().find(key);
      if (!decoded) {
        auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(stop - start) * row_bytes);
        read_chunk_row(dataset, {start, rows.type, rows.type_bytes, *bytes}, chunk_row, context);
        bytes_ = other_ = {};  // frees the memory, because a data set may have a thousand files
        decoded = std::move(bytes);
        ChunkCache::instance().add(key, decoded);
      }
      std::memcpy(wanted.to.data(), decoded->data() + static_cast<size_t>(row - start) * row_bytes, wanted.to.size());
    }
    row = part_end;
  }
}

// Returns whether the chunk at `at` extends beyond the array.
bool ChunkReader::is_partial(const Place& at) const {
  for (size_t d = 0; d < dims_.size(); ++d) {
    if (static_cast<int64_t>(at[d]) > dims_[d] - chunk_[d]) return true;
  }
  return false;
}

// Steps through all chunks that begin in one row of chunks: an odometer over the other dimensions.
void ChunkReader::read_chunk_row(hid_t dataset, const RowsInMemory& rows, int64_t chunk_row, const Context& context) {
  Place at(dims_.size(), 0);
  at[0] = static_cast<hsize_t>(chunk_row * chunk_[0]);
  for (;;) {
    read_chunk(dataset, rows, at, context);
    size_t d = dims_.size() - 1;
    for (; d > 0; --d) {
      at[d] += static_cast<hsize_t>(chunk_[d]);
      if (at[d] < static_cast<hsize_t>(dims_[d])) break;
      at[d] = 0;
    }
    if (d == 0) return;
  }
}

void ChunkReader::read_chunk(hid_t dataset, const RowsInMemory& rows, const Place& at, const Context& context) {
  if (fetch(dataset, at, context)) {
    decode(context);
  } else {
    fill();
  }
  convert(rows, context);
  place(rows, at);
}

// Reads the chunk as it is stored. Returns false if it was never written.
bool ChunkReader::fetch(hid_t dataset, const Place& at, const Context& context) {
  const Lock lock;
  const hsize_t stored = stored_bytes(dataset, at, context);
  if (stored == 0) return false;
  if (stored > static_cast<hsize_t>(most_stored_)) {
    fail(context.blame, "{}: damaged, a chunk of {} bytes in a file of {}", context.where, stored, most_stored_);
  }
  bytes_.resize(stored);
  check(H5Dread_chunk(dataset, H5P_DEFAULT, at.data(), &skipped_, bytes_.data()), context, "read a chunk");
  constexpr uint32_t kAll = ~uint32_t{0};
  if (partial_unfiltered_ && is_partial(at)) skipped_ = kAll;  // the file does not record this for each chunk
  return true;
}

void ChunkReader::decode(const Context& context) {
  const size_t chunk_bytes = chunk_elements_ * element_bytes_;
  for (size_t i = filters_.size(); i-- > 0;) {
    if ((skipped_ >> i & 1) != 0) continue;
    // The filters that were applied before this one may have made the data longer.
    undo(filters_[i], chunk_bytes + i * kChecksumBytes, context);
  }
  if (bytes_.size() == chunk_bytes) return;
  fail(context.blame, "{}: damaged, a chunk of {} bytes holds {}", context.where, chunk_bytes, bytes_.size());
}

void ChunkReader::undo(const Filter& filter, size_t most_bytes, const Context& context) {
  if (filter.id == H5Z_FILTER_FLETCHER32) {
    uint32_t stored = 0;
    const bool whole = bytes_.size() >= kChecksumBytes;
    const size_t length = whole ? bytes_.size() - kChecksumBytes : 0;
    if (whole) std::memcpy(&stored, bytes_.data() + length, kChecksumBytes);
    if (!whole || stored != hdf5_fletcher32(std::span(bytes_).first(length))) {
      fail(context.blame, "{}: damaged, the checksum of a chunk is wrong", context.where);
    }
    bytes_.resize(length);
    return;
  }
  if (filter.id == H5Z_FILTER_DEFLATE) {
    other_.resize(most_bytes);
    uLongf length = most_bytes;
    const int status = ::uncompress(reinterpret_cast<Bytef*>(other_.data()), &length,
                                    reinterpret_cast<const Bytef*>(bytes_.data()), bytes_.size());
    if (status != Z_OK) fail(context.blame, "{}: damaged, a chunk cannot be decompressed", context.where);
    other_.resize(length);
    std::swap(bytes_, other_);
    return;
  }
  const size_t width = filter.value, count = width > 1 ? bytes_.size() / width : 0;
  if (count < 2) return;
  other_ = bytes_;  // trailing bytes that do not fill an element are not shuffled
  for (size_t b = 0; b < width; ++b) {
    for (size_t i = 0; i < count; ++i) other_[i * width + b] = bytes_[b * count + i];
  }
  std::swap(bytes_, other_);
}

void ChunkReader::fill() {
  bytes_.resize(chunk_elements_ * element_bytes_);
  for (size_t i = 0; i < chunk_elements_; ++i) std::memcpy(&bytes_[i * element_bytes_], fill_.data(), element_bytes_);
}

void ChunkReader::convert(const RowsInMemory& rows, const Context& context) {
  const Lock lock;
  if (H5Tequal(type_.get(), rows.type) > 0) return;
  bytes_.resize(chunk_elements_ * std::max(element_bytes_, rows.type_bytes));
  check(H5Tconvert(type_.get(), rows.type, chunk_elements_, bytes_.data(), nullptr, H5P_DEFAULT), context,
        "convert the elements");
}

// Copies the part of the chunk at `at` that is inside the array and inside the requested rows.
void ChunkReader::place(const RowsInMemory& rows, const Place& at) const {
  const size_t rank = dims_.size();
  const int64_t start = static_cast<int64_t>(at[0]);
  std::vector<int64_t> extent(rank), index(rank, 0);
  for (size_t d = 0; d < rank; ++d) extent[d] = std::min(chunk_[d], dims_[d] - static_cast<int64_t>(at[d]));
  const int64_t row_elements = count_elements(std::span(dims_).subspan(1));
  const int64_t last = rows.first + static_cast<int64_t>(rows.to.size() / rows.type_bytes) / row_elements;
  index[0] = std::max<int64_t>(rows.first - start, 0);
  extent[0] = std::min(extent[0], last - start);
  // The dimensions from `outer` on are contiguous on both sides and are copied at once.
  size_t outer = rank;
  int64_t run = 1;
  while (outer > 1 && (outer == rank || chunk_[outer] == dims_[outer])) run *= extent[--outer];
  if (outer == 1 && (rank == 1 || chunk_[1] == dims_[1])) {
    run *= extent[0] - index[0];
    outer = 0;
  }
  for (;;) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < rank; ++d) {
      from = from * chunk_[d] + index[d];
      to = to * dims_[d] + index[d] + static_cast<int64_t>(at[d]) - (d == 0 ? rows.first : 0);
    }
    std::memcpy(rows.to.data() + static_cast<size_t>(to) * rows.type_bytes,
                bytes_.data() + static_cast<size_t>(from) * rows.type_bytes,
                static_cast<size_t>(run) * rows.type_bytes);
    size_t d = outer;
    while (d > 0 && ++index[d - 1] == extent[d - 1]) {
      --d;
      index[d] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace lockstep::hdf5
