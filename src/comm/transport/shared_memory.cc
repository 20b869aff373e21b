#include "comm/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr std::string_view kWhat = "memory shared by the ranks";

// Where the other ranks find a rank's memory, and how they verify that they have found the right one.
struct Address {
  int64_t process = 0, descriptor = -1, device = 0, file = 0, rank = -1;
};
constexpr size_t kAddressNumbers = sizeof(Address) / sizeof(int64_t);

[[noreturn]] void fail_call(std::string_view call, int error) {
  fail(ExitCode::internal, "{}: {}", call, errno_text(error));
}

// Creates the memory of a rank. The rank's number is stored after the `bytes`, for open_of() to verify.
FileDescriptor create(size_t bytes, int64_t rank) {
  FileDescriptor memory(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail_call("memfd_create", errno);
  const auto length = static_cast<off_t>(bytes + sizeof rank);
  if (ftruncate(memory.get(), length) != 0) fail_call("ftruncate", errno);
  int error = 0;
  do {
    error = posix_fallocate(memory.get(), 0, length);
  } while (error == EINTR);
  if (error != 0) fail_call("posix_fallocate", error);
  if (pwrite(memory.get(), &rank, sizeof rank, static_cast<off_t>(bytes)) != sizeof rank) fail_call("pwrite", errno);
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) fail_call("F_ADD_SEALS", errno);
  return memory;
}

Address address_of(const FileDescriptor& memory, int64_t rank) {
  struct stat status {};
  if (fstat(memory.get(), &status) != 0) fail_call("fstat", errno);
  return {.process = getpid(),
          .descriptor = memory.get(),
          .device = static_cast<int64_t>(status.st_dev),
          .file = static_cast<int64_t>(status.st_ino),
          .rank = rank};
}

// Opens the memory of another rank through /proc/PID/fd. If the processes cannot see each other, for instance in
// separate containers, the path does not exist or refers to another file. Such a file must not be opened, because it
// may be a terminal or a device. In separate virtual machines the path may refer to this rank's own memory with
// identical numbers, so the rank number that is stored in the memory is checked too.
FileDescriptor open_of(const Address& address, size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) fail_call(path, errno);
  bool same =
      static_cast<int64_t>(found.st_dev) == address.device && static_cast<int64_t>(found.st_ino) == address.file;
  FileDescriptor memory;
  if (same) {
    memory = FileDescriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!memory) fail_call(path, errno);
    int64_t rank = -1;
    same = pread(memory.get(), &rank, sizeof rank, static_cast<off_t>(bytes)) == sizeof rank && rank == address.rank;
  }
  if (!same) fail(ExitCode::internal, "{} is not the memory of rank {}", path, address.rank);
  return memory;
}

// The pages of another rank's memory are mapped as they are used: this rank adds up only a share of them.
std::byte* map(const FileDescriptor& memory, size_t bytes, bool mine) {
  const int flags = MAP_SHARED | (mine ? MAP_POPULATE : 0);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, memory.get(), 0);
  if (data == MAP_FAILED) fail_call("mmap", errno);
  return static_cast<std::byte*>(data);
}

}  // namespace

SharedMemory::Result SharedMemory::make(ProcessGroup& group, std::span<const int> local, size_t bytes) {
  require(bytes > 0, "no bytes to share");
  Result result;
  std::string reason;  // of this rank
  const auto try_to = [&](const auto& work) {
    if (!reason.empty()) return;
    try {
      work();
    } catch (const Error& error) {
      reason = fmt::format("{}: {}", group.describe(group.rank()), error.what());
    }
  };
  const Timeout wait{.what = kWhat};
  FileDescriptor own;
  std::array<int64_t, kAddressNumbers> numbers{};
  try_to([&] {
    own = create(bytes, group.rank());
    const Address mine = address_of(own, group.rank());
    numbers = {mine.process, mine.descriptor, mine.device, mine.file, mine.rank};
  });
  const std::vector<int64_t> all = group.all_gather(numbers, wait);
  std::unique_ptr<SharedMemory> memory(new SharedMemory(bytes));
  try_to([&] {
    for (const int r : local) {
      const auto* n = &all[static_cast<size_t>(r) * kAddressNumbers];
      if (n[0] == 0) return;  // that rank failed and reports the reason
      const bool mine = r == group.rank();
      const FileDescriptor theirs = mine ? FileDescriptor() : open_of({n[0], n[1], n[2], n[3], n[4]}, bytes);
      memory->blocks_.push_back(map(mine ? own : theirs, bytes, mine));
    }
  });
  // This exchange also keeps every descriptor open until all ranks have opened it.
  for (const std::string& text : group.all_gather(reason, wait)) {
    if (!text.empty() && result.reason.empty()) result.reason = text;
  }
  if (result.reason.empty()) result.memory = std::move(memory);
  return result;
}

SharedMemory::~SharedMemory() {
  for (std::byte* block : blocks_) {
    if (munmap(block, bytes_) != 0) log_warning("cannot give {} bytes of memory back: {}", bytes_, errno_text(errno));
  }
}

}  // namespace lockstep
