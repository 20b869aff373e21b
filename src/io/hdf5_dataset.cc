#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/fletcher32.h"
#include "io/hdf5_chunks.h"
#include "io/hdf5_internal.h"
#include "io/hdf5_virtual.h"
#include "lockstep/base/printable.h"

namespace lockstep {

using hdf5::check;
using hdf5::check_id;
using hdf5::Context;
using hdf5::Lock;

namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 19;  // fits in a core's cache while it is checked and copied

constexpr size_t kMostElementBytes = 16;  // of the widest number of this machine
constexpr size_t kMostIntegerBits = 64, kMostExponentBits = 15;

Hdf5Type classify(hid_t type) {
  if (H5Tget_class(type) == H5T_STRING) return Hdf5Type::string;
  if (!hdf5::is_number(type)) return Hdf5Type::other;
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      if (H5Tequal(type, H5T_NATIVE_FLOAT) > 0) return Hdf5Type::f32;
      if (H5Tequal(type, H5T_NATIVE_DOUBLE) > 0) return Hdf5Type::f64;
      return Hdf5Type::other_float;
    case H5T_INTEGER:
      if (H5Tequal(type, H5T_NATIVE_UINT8) > 0) return Hdf5Type::u8;
      if (H5Tequal(type, H5T_NATIVE_INT32) > 0) return Hdf5Type::i32;
      if (H5Tequal(type, H5T_NATIVE_INT64) > 0) return Hdf5Type::i64;
      return Hdf5Type::other_integer;
    default:
      return Hdf5Type::other;
  }
}

bool is_numeric(Hdf5Type type) { return type != Hdf5Type::string && type != Hdf5Type::other; }

std::vector<int64_t> extents(hid_t space, const Context& context) {
  if (H5Sget_simple_extent_type(space) == H5S_NULL) return {0};  // no values at all
  const int rank = check(H5Sget_simple_extent_ndims(space), context, "get the rank");
  std::vector<hsize_t> dims(rank);
  check(H5Sget_simple_extent_dims(space, dims.data(), nullptr), context, "get the extents");
  return {dims.begin(), dims.end()};  // an extent from 2^63 on becomes negative
}

// Returns whether the sizes in bytes of all parts of an array are representable; extents of 0 are ignored.
bool is_countable(std::vector<int64_t> dims, size_t element_bytes) {
  std::erase(dims, 0);
  dims.push_back(static_cast<int64_t>(std::max(element_bytes, kMostElementBytes)));
  return checked_product(dims).has_value();
}

// Returns whether the file stores as many bytes as the shape declares, for layouts in one piece. With a shorter layout,
// the library would read beyond its end.
bool is_stored_whole(hid_t dataset, hid_t creation, const Hdf5DatasetInfo& info) {
  const H5D_layout_t layout = H5Pget_layout(creation);
  if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS) return true;
  const hsize_t stored = H5Dget_storage_size(dataset);
  if (stored == 0 && layout == H5D_CONTIGUOUS) return true;  // never written: fill values
  return stored >= static_cast<hsize_t>(info.elements()) * info.element_bytes;
}

int64_t file_bytes_of(hid_t dataset, const Context& context) {
  const Hdf5Id file = check_id(H5Iget_file_id(dataset), context, "get the file");
  hsize_t bytes = 0;
  check(H5Fget_filesize(file.get(), &bytes), context, "get the file's size");
  return static_cast<int64_t>(bytes);
}

// Returns name and number of a filter that chunks may need and that the library lacks; empty if it has all.
std::string missing_filter(std::span<const hdf5::Filter> filters) {
  for (const hdf5::Filter& filter : filters) {
    if (filter.id < 0 || H5Zfilter_avail(filter.id) > 0) continue;
    return filter.name.empty() ? fmt::format("filter {}", filter.id)
                               : fmt::format("{} (filter {})", printable(filter.name), filter.id);
  }
  return {};
}

// Returns an upper bound for the bytes of a data set. The size of the file says nothing about virtual data sets, whose
// values are in other files.
int64_t most_bytes_for(hid_t creation, int64_t file_bytes) {
  if (H5Pget_layout(creation) == H5D_VIRTUAL) return ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  return hdf5::most_bytes_of(file_bytes);
}

template <class T>
hid_t memory_type_of() {
  const Lock lock;
  return hdf5::memory_type<T>();
}

// The part of the file that a transfer of some rows accesses.
struct Rows {
  int64_t first = 0;
  int64_t count = 0;
};

// Selects rows of the first dimension in a copy of the file's space.
Hdf5Id select_rows(hid_t dataset, const Rows& rows, std::span<const hsize_t> count, const Context& context) {
  Hdf5Id space = check_id(H5Dget_space(dataset), context, "get the data space");
  std::vector<hsize_t> start(count.size(), 0);
  start[0] = static_cast<hsize_t>(rows.first);
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), context,
        "select rows");
  return space;
}

// Calls transfer(memory space, file space, element offset) for parts of `rows` of a few MiB, and takes the lock for
// each part. Both spaces have the same rank, because the library takes nine times as long to match selections of
// different ranks.
template <class Transfer>
void for_each_piece(hid_t dataset, const Rows& rows, const Hdf5DatasetInfo& info, const Context& context,
                    const Transfer& transfer) {
  const int64_t row_elements = hdf5::count_elements(std::span(info.dims).subspan(1));
  const int64_t step = hdf5::rows_per_piece(info.dims, info.element_bytes);
  std::vector<hsize_t> count(info.dims.begin(), info.dims.end());
  for (int64_t done = 0; done < rows.count;) {
    const Rows piece{rows.first + done, std::min(step, rows.count - done)};
    count[0] = static_cast<hsize_t>(piece.count);
    const Lock lock;
    const Hdf5Id in_file = select_rows(dataset, piece, count, context);
    const Hdf5Id in_memory =
        check_id(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), context, "make a data space");
    transfer(in_memory.get(), in_file.get(), static_cast<size_t>(done * row_elements));
    done += piece.count;
  }
}

// Chooses chunks of whole rows of about kChunkBytes. They have nearly the same number of rows, because the last one is
// padded.
std::vector<hsize_t> chunk_extents(std::span<const int64_t> dims, size_t element_bytes) {
  std::vector<hsize_t> chunk(dims.begin(), dims.end());
  const int64_t row_bytes = hdf5::count_elements(dims.subspan(1)) * static_cast<int64_t>(element_bytes);
  const int64_t most_rows = std::clamp<int64_t>(kChunkBytes / row_bytes, 1, dims[0]);
  const int64_t chunks = (dims[0] + most_rows - 1) / most_rows;
  chunk[0] = static_cast<hsize_t>((dims[0] + chunks - 1) / chunks);
  return chunk;
}

Hdf5Id without_times(hid_t list_class, const Context& context) {
  Hdf5Id creation = check_id(H5Pcreate(list_class), context, "make a creation list");
  check(H5Pset_obj_track_times(creation.get(), false), context, "leave time stamps out");  // equal in, equal out
  return creation;
}

// Creates the groups above `path`. If HDF5 created them itself, they would have time stamps.
void make_groups_above(hid_t file, const std::string& path, const Context& context) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string group = path.substr(0, slash);
    if (check(H5Lexists(file, group.c_str(), H5P_DEFAULT), context, "look up the group") > 0) continue;
    const Hdf5Id creation = without_times(H5P_GROUP_CREATE, context);
    check_id(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), context, "make the group");
  }
}

// Writes a new data set chunk by chunk in the format of the file, including checksums. H5Dwrite iterates over single
// elements, which took most of the time of building a checkpoint.
void write_chunks(hid_t dataset, std::span<const int64_t> dims, std::span<const std::byte> values,
                  const Context& context) {
  const size_t row_bytes = values.size() / static_cast<size_t>(dims[0]);
  const auto chunk_rows =
      static_cast<int64_t>(chunk_extents(dims, values.size() / static_cast<size_t>(hdf5::count_elements(dims)))[0]);
  const size_t chunk_bytes = static_cast<size_t>(chunk_rows) * row_bytes;
  std::vector<std::byte> chunk(chunk_bytes + sizeof(uint32_t));
  for (int64_t row = 0; row < dims[0]; row += chunk_rows) {
    const auto rest = values.subspan(static_cast<size_t>(row) * row_bytes);
    const auto part = rest.first(std::min(rest.size(), chunk_bytes));
    const auto padding = std::copy(part.begin(), part.end(), chunk.begin());
    std::fill(padding, chunk.end(), std::byte{});  // the file stores only full chunks
    const uint32_t checksum = hdf5_fletcher32(std::span(chunk).first(chunk_bytes));
    std::memcpy(chunk.data() + chunk_bytes, &checksum, sizeof checksum);
    std::vector<hsize_t> offset(dims.size(), 0);
    offset[0] = static_cast<hsize_t>(row);
    const Lock lock;
    check(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, offset.data(), chunk.size(), chunk.data()), context, "write");
  }
}

}  // namespace

// HDF5 does not compare the bits that a damaged type describes with its bytes or with the width of its own buffers,
// beyond which its conversions then write.
bool hdf5::is_number(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) return false;
  const size_t bytes = H5Tget_size(type), precision = H5Tget_precision(type);
  const int offset = H5Tget_offset(type);
  if (bytes > kMostElementBytes || precision == 0 || offset < 0 || offset + precision > 8 * bytes) return false;
  if (kind == H5T_INTEGER) return precision <= kMostIntegerBits;
  size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) return false;
  return sign < precision && exponent_bits <= kMostExponentBits && exponent + exponent_bits <= precision &&
         mantissa_bits <= precision && mantissa + mantissa_bits <= precision;
}

int64_t Hdf5DatasetInfo::elements() const { return hdf5::count_elements(dims); }

Hdf5Dataset::Hdf5Dataset(Hdf5Id id, Place place, hdf5::SourceWalk& walk)
    : place_(std::move(place)), id_(std::move(id)) {
  const Context context{place_.where, place_.blame};
  const Hdf5Id creation = check_id(H5Dget_create_plist(id_.get()), context, "get the creation list");
  walk.require_values(id_.get(), creation.get(), context);
  const Hdf5Id type = check_id(H5Dget_type(id_.get()), context, "get the element type");
  const Hdf5Id space = check_id(H5Dget_space(id_.get()), context, "get the data space");
  info_.type = classify(type.get());
  info_.element_bytes = H5Tget_size(type.get());
  info_.dims = extents(space.get(), context);
  if (!is_countable(info_.dims, info_.element_bytes)) {
    fail(place_.blame, "{}: its shape, {}, is of more values than memory can hold", place_.where,
         dims_text(info_.dims));
  }
  if (!is_stored_whole(id_.get(), creation.get(), info_)) {
    fail(place_.blame, "{}: damaged, {} bytes are stored for the shape {}", place_.where,
         H5Dget_storage_size(id_.get()), dims_text(info_.dims));
  }
  info_.file_bytes = file_bytes_of(id_.get(), context);
  info_.most_bytes = most_bytes_for(creation.get(), info_.file_bytes);
  // The offset counts from the start of the file with the values, so that must be the file that was opened.
  if (H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && !place_.linked) {
    const haddr_t offset = H5Dget_offset(id_.get());
    if (offset != HADDR_UNDEF) info_.file_offset = static_cast<int64_t>(offset);
  }
  const std::vector<hdf5::Filter> filters = hdf5::filters_of(creation.get(), context);
  info_.has_checksum = std::ranges::count(filters, H5Z_FILTER_FLETCHER32, &hdf5::Filter::id) > 0;
  chunks_ = hdf5::ChunkReader::make(id_.get(), creation.get(), info_, context);
  if (chunks_) info_.rows_together = chunks_->rows_together();
  if (!chunks_) missing_filter_ = missing_filter(filters);
}

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  const Lock lock;
  hdf5::SourceWalk walk(stands_alone());
  return dataset(path, walk);
}

Hdf5Dataset Hdf5File::dataset(const std::string& path, hdf5::SourceWalk& walk) const {
  const Context context{name_, blame_};
  const hdf5::LinkAccess access(stands_alone(), context);
  hdf5::require_sound_links(id_.get(), path, access, context);
  Hdf5Id id(access.check(H5Oopen(id_.get(), path.c_str(), access.list()), context, "open data set " + path));
  if (H5Iget_type(id.get()) != H5I_DATASET) fail(blame_, "{}: {} is not a data set", name_, printable(path));
  return {std::move(id),
          {.where = fmt::format("{}: {}", name_, printable(path)),
           .blame = blame_,
           .memory = memory_,
           .linked = access.left_file()},
          walk};
}

// Throws if H5Dread failed. A missing filter is an error only now, because every chunk may have skipped it.
void Hdf5Dataset::require_read(int status) const {
  if (status < 0 && !missing_filter_.empty()) {
    H5Eclear2(H5E_DEFAULT);
    fail(place_.blame,
         "{}: is compressed by {}, which this HDF5 library does not have; write it again with one that has it, by "
         "h5repack -f GZIP=4 FROM TO, or in h5py with compression=\"gzip\"",
         place_.where, missing_filter_);
  }
  check(status, {place_.where, place_.blame}, "read");
}

template <class T>
void Hdf5Dataset::read(std::span<T> to) const {
  require(static_cast<int64_t>(to.size()) == info_.elements(), "{}: {} elements read into {}", place_.where,
          info_.elements(), to.size());
  if (!info_.dims.empty()) return read_rows(0, to);
  if (!is_numeric(info_.type)) fail(place_.blame, "{}: holds no numbers", place_.where);
  const Lock lock;
  require_read(H5Dread(id_.get(), hdf5::memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, to.data()));
}

template <class T>
std::vector<T> Hdf5Dataset::read() const {
  std::vector<T> values = hdf5::allocate<T>(info_.elements(), info_.most_bytes, {place_.where, place_.blame});
  read(std::span(values));
  return values;
}

template <class T>
void Hdf5Dataset::read_rows(int64_t first, std::span<T> to) const {
  if (!is_numeric(info_.type)) fail(place_.blame, "{}: holds no numbers", place_.where);
  if (info_.dims.empty()) fail(place_.blame, "{}: is a single value, not rows", place_.where);
  if (to.empty()) return;
  const int64_t row_elements = hdf5::count_elements(std::span(info_.dims).subspan(1));
  const Rows rows{first, static_cast<int64_t>(to.size()) / row_elements};
  require(rows.first >= 0 && rows.first + rows.count <= info_.dims[0] &&
              rows.count * row_elements == static_cast<int64_t>(to.size()),
          "{}: {} elements from row {} of {}", place_.where, to.size(), first, info_.dims[0]);
  const Context context{place_.where, place_.blame};
  if (chunks_) {
    return chunks_->read(id_.get(), {rows.first, memory_type_of<T>(), sizeof(T), std::as_writable_bytes(to)}, context);
  }
  for_each_piece(id_.get(), rows, info_, context, [&](hid_t in_memory, hid_t in_file, size_t offset) {
    require_read(H5Dread(id_.get(), hdf5::memory_type<T>(), in_memory, in_file, H5P_DEFAULT, to.data() + offset));
  });
}

std::vector<std::string> Hdf5Dataset::read_strings() const {
  if (info_.type != Hdf5Type::string) fail(place_.blame, "{}: holds no strings", place_.where);
  const Context context{place_.where, place_.blame};
  const Lock lock;
  const Hdf5Id type = check_id(H5Dget_type(id_.get()), context, "get the element type");
  const Hdf5Id space = check_id(H5Dget_space(id_.get()), context, "get the data space");
  const hdf5::StringsOf source{type.get(), space.get(), info_.elements(), info_.most_bytes};
  return hdf5::read_strings(source, context, [&](hid_t memory, hid_t list, void* to) -> herr_t {
    if (chunks_) {
      const size_t length = H5Tget_size(memory);
      const std::span bytes(static_cast<std::byte*>(to), static_cast<size_t>(source.count) * length);
      chunks_->read(id_.get(), {0, memory, length, bytes}, context);
      return 0;
    }
    const herr_t status = H5Dread(id_.get(), memory, H5S_ALL, H5S_ALL, list, to);
    if (!missing_filter_.empty()) require_read(status);
    return status;
  });
}

void Hdf5File::write_elements(const std::string& path, const Elements& elements) {
  const auto& [type, dims, bytes] = elements;
  const std::string where = fmt::format("{}: {}", name_, path);
  const Context context{where, blame_};
  Hdf5Id dataset;
  {
    const Lock lock;
    const std::vector<hsize_t> extent(dims.begin(), dims.end());
    const std::vector<hsize_t> chunk = chunk_extents(dims, H5Tget_size(type));
    const int rank = static_cast<int>(dims.size());
    const Hdf5Id space = check_id(H5Screate_simple(rank, extent.data(), nullptr), context, "make a data space");
    const Hdf5Id creation = without_times(H5P_DATASET_CREATE, context);
    check(H5Pset_chunk(creation.get(), rank, chunk.data()), context, "set the chunks");
    check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), context, "skip the fill values");
    check(H5Pset_fletcher32(creation.get()), context, "ask for checksums");
    make_groups_above(id_.get(), path, context);
    dataset = check_id(H5Dcreate2(id_.get(), path.c_str(), type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                       context, "create the data set");
  }
  write_chunks(dataset.get(), dims, bytes, context);
  const Lock lock;
  check(H5Dclose(dataset.release()), context, "close the data set");
}

template <class T>
void Hdf5File::write(const std::string& path, std::span<const int64_t> dims, std::span<const T> values) {
  require(!dims.empty() && hdf5::count_elements(dims) == static_cast<int64_t>(values.size()) && !values.empty(),
          "{}: {} values for {}", name_, values.size(), path);
  write_elements(path, {.type = memory_type_of<T>(), .dims = dims, .bytes = std::as_bytes(values)});
}

void Hdf5File::write_strings(const std::string& path, std::span<const std::string> values) {
  require(!values.empty(), "{}: no strings for {}", name_, path);
  const Context context{name_, blame_};
  const size_t length = std::ranges::max(values, {}, &std::string::size).size() + 1;
  std::vector<std::byte> bytes(values.size() * length);  // NUL after each
  for (size_t i = 0; i < values.size(); ++i) {
    std::ranges::copy(std::as_bytes(std::span(values[i])), bytes.begin() + static_cast<ptrdiff_t>(i * length));
  }
  Hdf5Id type;
  {
    const Lock lock;
    type = check_id(H5Tcopy(H5T_C_S1), context, "make a string type");
    check(H5Tset_size(type.get(), length), context, "set the string length");
    check(H5Tset_strpad(type.get(), H5T_STR_NULLTERM), context, "set the padding");
    check(H5Tset_cset(type.get(), H5T_CSET_UTF8), context, "set the character set");
  }
  const std::array<int64_t, 1> dims{std::ssize(values)};
  write_elements(path, {.type = type.get(), .dims = dims, .bytes = bytes});
}

#define LOCKSTEP_HDF5_ELEMENT(T)                                        \
  template void Hdf5Dataset::read<T>(std::span<T>) const;               \
  template std::vector<T> Hdf5Dataset::read<T>() const;                 \
  template void Hdf5Dataset::read_rows<T>(int64_t, std::span<T>) const; \
  template void Hdf5File::write<T>(const std::string&, std::span<const int64_t>, std::span<const T>);
LOCKSTEP_HDF5_ELEMENT(float)
LOCKSTEP_HDF5_ELEMENT(double)
LOCKSTEP_HDF5_ELEMENT(int64_t)
LOCKSTEP_HDF5_ELEMENT(int32_t)
LOCKSTEP_HDF5_ELEMENT(uint8_t)
#undef LOCKSTEP_HDF5_ELEMENT

}  // namespace lockstep
