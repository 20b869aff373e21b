#include "lockstep/io/hdf5.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "io/hdf5_internal.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace hdf5 {

Lock::Lock() {
  static std::recursive_mutex* mutex =
      new std::recursive_mutex;  // never destroyed, because handles may close during exit
  held_ = std::unique_lock(*mutex);
  static const bool once = H5dont_atexit() >= 0;
  static_cast<void>(once);
  thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(quiet);
}

void fail_call(const Context& context, std::string_view what) {
  std::string reasons;
  const auto collect = [](unsigned, const H5E_error2_t* entry, void* to) -> herr_t {
    auto& text = *static_cast<std::string*>(to);
    if (entry->desc && text.find(entry->desc) == std::string::npos) text += fmt::format(": {}", entry->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect, &reasons);
  H5Eclear2(H5E_DEFAULT);
  constexpr size_t kMostReasons = 1000;
  fail(context.blame, "{}: cannot {}{}", context.where, printable(what), printable(reasons, kMostReasons));
}

int64_t count_elements(std::span<const int64_t> dims) {
  const std::optional<int64_t> count = checked_product(dims);
  require(count.has_value(), "the elements of {} cannot be counted", dims_text(dims));
  return *count;
}

int64_t most_bytes_of(int64_t file_bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return file_bytes > (kMost - kSmallArrays) / kMostExpansion ? kMost : file_bytes * kMostExpansion + kSmallArrays;
}

int64_t rows_per_piece(std::span<const int64_t> dims, size_t element_bytes) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  if (dims.empty() || dims[0] == 0) return 1;
  const int64_t row_bytes = count_elements(dims.subspan(1)) * static_cast<int64_t>(element_bytes);
  return std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(row_bytes, 1), 1, dims[0]);
}

}  // namespace hdf5

using hdf5::check;
using hdf5::check_id;
using hdf5::Context;
using hdf5::LinkAccess;
using hdf5::Lock;

std::string dims_text(std::span<const int64_t> dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

std::string hdf5_version() {
  const Lock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

void Hdf5IdTraits::destroy(type id) noexcept {
  const Lock lock;
  if (H5Idec_ref(id) < 0) {
    H5Eclear2(H5E_DEFAULT);
    log_warning("HDF5: a handle could not be closed");
  }
}

void Hdf5Image::Free::operator()(std::byte* data) const noexcept { std::free(data); }

// The memory of a file image, for the callbacks of HDF5's core driver. A borrowed image is passed to the library as it
// is. A new one belongs to the library until it closes the file and returns the memory to free().
struct Hdf5File::Memory {
  void* data = nullptr;
  size_t bytes = 0;
  bool borrowed = false;
  size_t capacity = 0;  // of a new image; the library requests memory in small steps

  ~Memory() {
    if (!borrowed) std::free(data);
  }

  static void* allocate(size_t bytes, H5FD_file_image_op_t, void* self) {
    auto& memory = *static_cast<Memory*>(self);
    return memory.borrowed && bytes == memory.bytes ? memory.data : nullptr;
  }
  static void* copy(void* to, const void* from, size_t bytes, H5FD_file_image_op_t, void*) {
    return to == from ? to : std::memcpy(to, from, bytes);
  }
  static void* resize(void* data, size_t bytes, H5FD_file_image_op_t, void* self) {
    auto& memory = *static_cast<Memory*>(self);
    if (memory.borrowed) return nullptr;
    if (!data || bytes > memory.capacity) {
      memory.capacity = std::max(bytes + bytes / 2, memory.capacity);
      data = moved(data, memory);
    }
    if (data) memory.bytes = bytes;
    return data;
  }
  // The memory starts on a page boundary, as direct I/O requires, and uses huge pages if there are any: handling small
  // pages took the kernel a tenth of the time of a save. Pages that are never touched take no memory.
  static void* moved(void* data, const Memory& memory) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t capacity = (memory.capacity + kHugePage - 1) / kHugePage * kHugePage;
    void* to = std::aligned_alloc(kHugePage, capacity);
    if (!to) return nullptr;
    ::madvise(to, capacity, MADV_HUGEPAGE);
    if (data) std::memcpy(to, data, memory.bytes);
    std::free(data);
    return to;
  }
  static herr_t release(void* data, H5FD_file_image_op_t operation, void* self) {
    auto& memory = *static_cast<Memory*>(self);
    if (!memory.borrowed && operation == H5FD_FILE_IMAGE_OP_FILE_CLOSE) memory.data = data;
    return 0;
  }
  static void* share(void* self) { return self; }
  static herr_t unshare(void*) { return 0; }

  H5FD_file_image_callbacks_t callbacks() {
    return {.image_malloc = allocate,
            .image_memcpy = copy,
            .image_realloc = resize,
            .image_free = release,
            .udata_copy = share,
            .udata_free = unshare,
            .udata = this};
  }
};

namespace {

// The properties with which files are opened for reading. The library's chunk cache is off: hdf5_chunks.cc decodes
// chunks with filters, and the library then reads the others with the size that follows from their shape, not with the
// size that the file claims.
Hdf5Id reading_list(const Context& context) {
  Hdf5Id access = check_id(H5Pcreate(H5P_FILE_ACCESS), context, "make an access list");
  constexpr size_t kSlots = 1;
  check(H5Pset_cache(access.get(), 0, kSlots, 0, 1.0), context, "leave the cache of chunks out");
  return access;
}

// The core driver treats two files of one name as the same file, so each gets its own name.
std::string unique_name(const std::string& name) {
  static std::atomic<uint64_t> count{0};
  return fmt::format("{}#{}", name, ++count);
}

constexpr size_t kGrowthBytes = size_t{1} << 20;  // small enough to stay in the cache after the library has zeroed it

// Returns the end of the file according to the superblock, which follows the user block. The buffer is longer, because
// it grows by kGrowthBytes.
size_t stored_end(std::span<const std::byte> image, size_t user_block_bytes) {
  constexpr std::array<unsigned char, 8> kSignature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};
  constexpr size_t kVersionAt = 8;
  constexpr size_t kEndAddressAt = 28;
  require(image.size() >= user_block_bytes + kEndAddressAt + 8, "HDF5 image of {} bytes", image.size());
  const std::byte* block = image.data() + user_block_bytes;
  require(std::memcmp(block, kSignature.data(), kSignature.size()) == 0, "HDF5 image without a signature");
  require(static_cast<int>(block[kVersionAt]) >= 2, "HDF5 image of superblock version {}",
          static_cast<int>(block[kVersionAt]));
  uint64_t end = 0;
  for (size_t i = 8; i-- > 0;) end = (end << 8) | static_cast<uint64_t>(block[kEndAddressAt + i]);
  require(end > user_block_bytes && end <= image.size(), "HDF5 image ends at {} of {}", end, image.size());
  return end;
}

}  // namespace

Hdf5File::Hdf5File(Hdf5Id id, std::string name, ExitCode blame)
    : id_(std::move(id)), name_(std::move(name)), blame_(blame) {}
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&& other) noexcept {
  id_ = std::move(other.id_);  // closes the file before its memory is freed
  memory_ = std::move(other.memory_);
  name_ = std::move(other.name_);
  blame_ = other.blame_;
  return *this;
}
Hdf5File::~Hdf5File() = default;

Hdf5File Hdf5File::open(const std::string& path, ExitCode blame) {
  const Context context{path, blame};
  open_regular_file(path, blame);  // the library would wait for a named pipe
  const Lock lock;
  const Hdf5Id access = reading_list(context);
  check(H5Pset_file_locking(access.get(), false, true), context, "turn file locking off");
  return {check_id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), context, "open as HDF5"), path, blame};
}

Hdf5File Hdf5File::open_image(std::span<const std::byte> image, const std::string& name, ExitCode blame) {
  const Context context{name, blame};
  auto memory = std::make_shared<Memory>();
  memory->data = const_cast<std::byte*>(image.data());  // the file is opened read-only
  memory->bytes = image.size();
  memory->borrowed = true;
  H5FD_file_image_callbacks_t callbacks = memory->callbacks();
  const Lock lock;
  const Hdf5Id access = reading_list(context);
  check(H5Pset_fapl_core(access.get(), kGrowthBytes, false), context, "choose the memory driver");
  check(H5Pset_file_image_callbacks(access.get(), &callbacks), context, "set the image callbacks");
  check(H5Pset_file_image(access.get(), memory->data, memory->bytes), context, "set the image");
  Hdf5File file(check_id(H5Fopen(unique_name(name).c_str(), H5F_ACC_RDONLY, access.get()), context, "open as HDF5"),
                name, blame);
  file.memory_ = std::move(memory);
  return file;
}

Hdf5File Hdf5File::create_in_memory(const std::string& name, const CreateOptions& options) {
  const Context context{name, options.blame};
  auto memory = std::make_shared<Memory>();
  memory->capacity = options.expected_bytes;
  H5FD_file_image_callbacks_t callbacks = memory->callbacks();
  const Lock lock;
  const Hdf5Id access = check_id(H5Pcreate(H5P_FILE_ACCESS), context, "make an access list");
  check(H5Pset_fapl_core(access.get(), kGrowthBytes, false), context, "choose the memory driver");
  check(H5Pset_file_image_callbacks(access.get(), &callbacks), context, "set the image callbacks");
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), context, "set the format version");
  const Hdf5Id creation = check_id(H5Pcreate(H5P_FILE_CREATE), context, "make a creation list");
  check(H5Pset_userblock(creation.get(), options.user_block_bytes), context, "reserve the user block");
  check(H5Pset_obj_track_times(creation.get(), false), context, "leave time stamps out");  // equal in, equal out
  Hdf5File file(check_id(H5Fcreate(unique_name(name).c_str(), H5F_ACC_EXCL, creation.get(), access.get()), context,
                         "create in memory"),
                name, options.blame);
  file.memory_ = std::move(memory);
  return file;
}

Hdf5Image Hdf5File::finish() && {
  require(memory_ && !memory_->borrowed, "{}: only a new file in memory can be finished", name_);
  size_t user_block_bytes = 0;
  {
    const Context context{name_, blame_};
    const Lock lock;
    const Hdf5Id creation = check_id(H5Fget_create_plist(id_.get()), context, "get the creation list");
    hsize_t size = 0;
    check(H5Pget_userblock(creation.get(), &size), context, "get the user block's size");
    user_block_bytes = static_cast<size_t>(size);
    check(H5Fclose(id_.release()), context, "finish the file in memory");
  }
  require(memory_->data, "{}: finished while parts of it are open", name_);
  Hdf5Image whole(std::exchange(memory_->data, nullptr), memory_->bytes);
  std::memset(whole.bytes().data(), 0, user_block_bytes);
  whole.shrink_to(stored_end(whole.bytes(), user_block_bytes));
  return whole;
}

int64_t Hdf5File::most_bytes() const {
  if (memory_) return hdf5::most_bytes_of(static_cast<int64_t>(memory_->bytes));
  const Lock lock;
  hsize_t bytes = 0;
  check(H5Fget_filesize(id_.get(), &bytes), {name_, blame_}, "get the file's size");
  return hdf5::most_bytes_of(static_cast<int64_t>(bytes));
}

bool Hdf5File::exists(const std::string& path) const {
  if (path == "/") return true;
  const Context context{name_, blame_};
  const Lock lock;
  const LinkAccess access(stands_alone(), context);
  // H5Lexists requires that every group above exists.
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string prefix = path.substr(0, slash);
    hdf5::require_sound_links(id_.get(), prefix, access, context);
    if (access.check(H5Lexists(id_.get(), prefix.c_str(), access.list()), context, "look up " + prefix) == 0) {
      return false;
    }
    if (slash == std::string::npos) return true;
  }
}

Hdf5Id Hdf5File::open_object(const std::string& path) const {
  const Context context{name_, blame_};
  const LinkAccess access(stands_alone(), context);
  hdf5::require_sound_links(id_.get(), path, access, context);
  return Hdf5Id(access.check(H5Oopen(id_.get(), path.c_str(), access.list()), context, "open " + path));
}

std::vector<Hdf5File::Entry> Hdf5File::list(const std::string& group) const {
  const Context context{name_, blame_};
  const Lock lock;
  const Hdf5Id object = open_object(group);
  std::vector<Entry> entries;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    static_cast<std::vector<Entry>*>(to)->push_back({name, Kind::other});
    return 0;
  };
  check(H5Literate(object.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &entries), context, "list " + group);
  for (Entry& entry : entries) {
    const LinkAccess access(stands_alone(), context);
    hdf5::require_sound_links(object.get(), entry.name, access, context);
    if (H5Oexists_by_name(object.get(), entry.name.c_str(), access.list()) <= 0 && !access.refused()) {
      H5Eclear2(H5E_DEFAULT);  // a link without a target
      continue;
    }
    const Hdf5Id child(
        access.check(H5Oopen(object.get(), entry.name.c_str(), access.list()), context, "open " + entry.name));
    const H5I_type_t type = H5Iget_type(child.get());
    entry.kind = type == H5I_GROUP ? Kind::group : type == H5I_DATASET ? Kind::dataset : Kind::other;
  }
  return entries;
}

}  // namespace lockstep
