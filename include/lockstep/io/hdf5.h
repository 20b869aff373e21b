// HDF5 files as values: open from disk or memory, build in memory, groups, data sets, attributes. Every call holds the
// one process-wide lock only while it runs, and long transfers acquire it again for each piece, so one thread's save
// never stalls another's read. The library never writes to disk itself: on a full disk, its own file driver produces a
// file that closes without error and reads back as zeros.
//
// Declarations in a file are checked before they are used. Sizes whose product overflows, elements of more than 16
// bytes and data sets that keep their values in a raw external file are errors, as are values that take more than
// kMostExpansion times the file's own bytes and kSmallArrays in memory: a compressed or unwritten data set of a few
// bytes can declare terabytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_handle.h"

namespace lockstep {

namespace hdf5 {
class ChunkReader;
class SourceWalk;
}  // namespace hdf5

struct Hdf5IdTraits {
  using type = int64_t;  // hid_t
  static type invalid() { return -1; }
  static void destroy(type id) noexcept;
};
using Hdf5Id = UniqueHandle<Hdf5IdTraits>;

// How elements are stored. The named types are native (IEEE 754, this machine's byte order), so their bytes can be used
// as they are in the file; other_float and other_integer are converted on reading.
enum class Hdf5Type : uint8_t { f32, f64, u8, i32, i64, other_float, other_integer, string, other };

inline constexpr int64_t kMostExpansion = 64;
inline constexpr int64_t kSmallArrays = int64_t{16} << 20;  // bytes

struct Hdf5DatasetInfo {
  Hdf5Type type = Hdf5Type::other;
  std::vector<int64_t> dims;  // empty for a scalar; the product with element_bytes fits int64_t
  // Offset of the first byte if the elements are contiguous in the opened file itself; otherwise -1.
  int64_t file_offset = -1;
  size_t element_bytes = 0;
  bool has_checksum = false;  // Fletcher32 over every chunk
  int64_t file_bytes = 0;     // of the file that contains it
  int64_t most_bytes = 0;     // that its values may take in memory
  int64_t rows_together = 1;  // that must be decoded for any one of them if chunks are compressed
  int64_t elements() const;
};

// "[2,3,8,8]"; "[]" for a scalar.
std::string dims_text(std::span<const int64_t> dims);

// A file image: memory that holds a whole HDF5 file. A new one starts on a page boundary.
class Hdf5Image {
 public:
  Hdf5Image() = default;
  Hdf5Image(void* allocated, size_t bytes) : data_(static_cast<std::byte*>(allocated)), bytes_(bytes) {}
  std::span<std::byte> bytes() { return {data_.get(), bytes_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), bytes_}; }
  void shrink_to(size_t bytes) { bytes_ = bytes; }  // forgets the bytes after that

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t bytes_ = 0;
};

// "HDF5 1.10.8", of the library that is loaded.
std::string hdf5_version();

// An open data set; keeps its file open. One thread at a time may use an object; different ones are independent.
class Hdf5Dataset {
 public:
  Hdf5Dataset(Hdf5Dataset&&) noexcept = default;

  const Hdf5DatasetInfo& info() const { return info_; }

  // Reads the whole data set, converted to T (float, double, int64_t, int32_t, uint8_t); `to` holds exactly elements().
  template <class T>
  void read(std::span<T> to) const;
  // The same into new memory. Throws if that would exceed info().most_bytes or cannot be allocated.
  template <class T>
  std::vector<T> read() const;
  // Reads rows [first, first + to.size() / row elements) of the first dimension.
  template <class T>
  void read_rows(int64_t first, std::span<T> to) const;
  // Reads a scalar or one-dimensional data set of strings, of fixed or variable length; bounded like read().
  std::vector<std::string> read_strings() const;

 private:
  friend class Hdf5File;
  struct Place {
    std::string where;  // "file: /path", for messages
    ExitCode blame;
    std::shared_ptr<void> memory;  // of an image
    bool linked = false;           // an external link leads to it
  };
  Hdf5Dataset(Hdf5Id id, Place place, hdf5::SourceWalk& walk);
  void require_read(int status) const;

  Place place_;
  Hdf5Id id_;
  Hdf5DatasetInfo info_;
  std::shared_ptr<hdf5::ChunkReader> chunks_;  // of filtered chunks; else the library reads
  std::string missing_filter_;                 // one that the library does not have
};

// An open file. Paths inside it are absolute ("/model/fc.weight"). Errors are thrown as Error(blame) and name the file,
// the path inside it and the library's reason. One thread at a time may use an object; different files are independent.
//
// A file on disk may have external links and virtual data sets, which the library follows into other HDF5 files. The
// sources of a virtual data set must exist, at any depth. The library itself reads their values, so a damaged
// compressed chunk may go undetected there, unlike in a data set that is opened directly. A file in memory must be
// self-contained: links and virtual data sets are errors there, so that no other file that the user may read becomes
// part of it.
class Hdf5File {
 public:
  // Opens a regular file read-only, without the library's file locks, which fail on network file systems.
  static Hdf5File open(const std::string& path, ExitCode blame);
  // Reads a file in memory, without a copy. `image` must outlive the result; it is not changed.
  static Hdf5File open_image(std::span<const std::byte> image, const std::string& name, ExitCode blame);

  struct CreateOptions {
    size_t user_block_bytes = 0;  // 0 or a power of two from 512 on: left to the caller, at the start of the image
    size_t expected_bytes = 0;    // of the whole file; avoids moving it as it grows
    ExitCode blame = ExitCode::internal;
  };
  // Creates a file in memory, which finish() returns. It has HDF5 1.10's format, the oldest in which all metadata have
  // checksums.
  static Hdf5File create_in_memory(const std::string& name, const CreateOptions& options);
  // Closes a file made by create_in_memory, of which no data set may be open, and returns its memory.
  Hdf5Image finish() &&;

  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;
  ~Hdf5File();

  const std::string& name() const { return name_; }
  bool exists(const std::string& path) const;

  // Returns the most bytes that the arrays of this file may take in memory together.
  int64_t most_bytes() const;

  enum class Kind : uint8_t { group, dataset, other };
  struct Entry {
    std::string name;
    Kind kind;
  };
  std::vector<Entry> list(const std::string& group) const;  // sorted by name

  Hdf5Dataset dataset(const std::string& path) const;
  template <class T>
  std::vector<T> read(const std::string& path) const {
    return dataset(path).read<T>();
  }
  // Creates a chunked data set with Fletcher32 checksums (T as for reading). `dims` are positive, a single value has
  // {1}. Groups above it are created.
  template <class T>
  void write(const std::string& path, std::span<const int64_t> dims, std::span<const T> values);
  // The same for [N] UTF-8 strings without NUL characters, all stored in the length of the longest. N is positive.
  void write_strings(const std::string& path, std::span<const std::string> values);

  // Attributes of the group or data set at `object`.
  std::optional<int64_t> integer_attribute(const std::string& object, const std::string& name) const;
  std::optional<std::string> string_attribute(const std::string& object, const std::string& name) const;
  void write_attribute(const std::string& object, const std::string& name, int64_t value);
  void write_attribute(const std::string& object, const std::string& name, const std::string& value);

 private:
  friend class hdf5::SourceWalk;
  struct Memory;
  struct Elements {
    int64_t type = -1;  // hid_t
    std::span<const int64_t> dims;
    std::span<const std::byte> bytes;
  };
  Hdf5File(Hdf5Id id, std::string name, ExitCode blame);
  void write_elements(const std::string& path, const Elements& elements);
  Hdf5Id open_object(const std::string& path) const;
  Hdf5Dataset dataset(const std::string& path, hdf5::SourceWalk& walk) const;
  bool stands_alone() const { return memory_ != nullptr; }

  std::shared_ptr<Memory> memory_;  // of an image; freed after the file is closed
  Hdf5Id id_;
  std::string name_;
  ExitCode blame_;
};

}  // namespace lockstep
