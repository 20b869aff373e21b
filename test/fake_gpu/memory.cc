#include "test/fake_gpu/memory.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

namespace lockstep::fake_gpu {
namespace {

constexpr size_t kPage = 4096, kAlignment = 256;
constexpr size_t kHugePage = size_t{2} << 20;    // opened and closed at once, where an allocation fills it
constexpr size_t kReserved = size_t{256} << 30;  // addresses, not memory
constexpr unsigned char kFresh = 0xff;           // as a float: NaN
constexpr unsigned char kMargin = 0xa5;          // between an allocation's last byte and its last page's end

thread_local const char* running = nullptr;  // the device work of this thread

struct Block {
  char* pages = nullptr;
  size_t page_bytes = 0;
  size_t bytes = 0;

  // Bytes in front of the first that are looked at.
  size_t front(const char* data) const { return std::min(static_cast<size_t>(data - pages), kAlignment); }
};

// One kind of memory: addresses are handed out once, each allocation ends where its last page ends.
class Region {
 public:
  Region() {
    void* const memory =
        ::mmap(nullptr, kReserved + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("fake GPU: no address space");
    const auto address = reinterpret_cast<uintptr_t>(memory);
    begin_ = next_ = static_cast<char*>(memory) + (round_up(address, kHugePage) - address);
  }

  char* allocate(size_t bytes) {
    const size_t used = round_up(bytes, kAlignment), page = used < kHugePage ? kPage : kHugePage;
    const size_t page_bytes = round_up(used, page);
    char* const pages = begin_ + round_up(static_cast<size_t>(next_ - begin_) + kPage, page);
    if (page_bytes + kPage > static_cast<size_t>(begin_ + kReserved - pages)) return nullptr;
    const Block block{pages, page_bytes, bytes};
    if (::mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    if (page == kHugePage) ::madvise(pages, page_bytes, MADV_HUGEPAGE);
    next_ = pages + page_bytes;  // the page behind is the next one's page before
    char* const data = pages + page_bytes - used;
    std::memset(data - block.front(data), kMargin, block.front(data));
    std::memset(data, kFresh, bytes);
    std::memset(data + bytes, kMargin, used - bytes);
    blocks_[data] = block;
    return data;
  }

  // Of memory that can be read.
  std::string release(char* data) {
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return fmt::format("{} is no allocation, or one that was freed", fmt::ptr(data));
    const Block block = found->second;
    char* const end = block.pages + block.page_bytes;
    const auto is_margin = [](char byte) { return static_cast<unsigned char>(byte) == kMargin; };
    std::string trouble;
    if (!std::all_of(data - block.front(data), data, is_margin)) {
      trouble = fmt::format("something wrote in front of an allocation of {} bytes", block.bytes);
    }
    if (const char* const at = std::find_if_not(data + block.bytes, end, is_margin); at < end) {
      trouble = fmt::format("something wrote {} bytes behind an allocation of {} bytes", at - data - block.bytes + 1,
                            block.bytes);
    }
    ::mprotect(block.pages, block.page_bytes, PROT_NONE);
    ::madvise(block.pages, block.page_bytes, MADV_DONTNEED);
    blocks_.erase(found);
    return trouble;
  }

  void protect(int protection) {
    for (const auto& [data, block] : blocks_) ::mprotect(block.pages, block.page_bytes, protection);
  }
  void protect(char* data, int protection) {
    const auto found = blocks_.find(data);
    if (found != blocks_.end()) ::mprotect(found->second.pages, found->second.page_bytes, protection);
  }

  size_t bytes_of(const void* data) const {
    const auto found = blocks_.find(static_cast<char*>(const_cast<void*>(data)));
    return found == blocks_.end() ? 0 : found->second.bytes;
  }
  bool contains(const void* data) const { return data >= begin_ && data < begin_ + kReserved; }

  // Whether all the bytes lie in one allocation that lives.
  bool holds(const char* data, size_t bytes) const {
    auto after = blocks_.upper_bound(const_cast<char*>(data));
    if (after == blocks_.begin()) return false;
    const auto& [begin, block] = *--after;
    return static_cast<size_t>(data - begin) + bytes <= block.bytes;
  }

 private:
  static size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

  char* begin_;
  char* next_;
  std::map<char*, Block> blocks_;
};

struct Memory {
  std::mutex mutex;
  Region device, pinned;
  bool open = false;
  int users = 0;  // pieces of device work that run
};

// Never destroyed: device work may run while statics go.
Memory& memory() {
  static auto* const instance = new Memory;
  return *instance;
}

struct sigaction before;  // what handled SIGSEGV before us

// Says what the crash is about; what was there before us does the rest.
void on_crash(int signal, siginfo_t* info, void*) {
  const Memory& m = memory();
  const bool device = m.device.contains(info->si_addr), pinned = m.pinned.contains(info->si_addr);
  if (device || pinned) {
    char text[512];
    const char* const kind = device ? "device memory" : "pinned memory";
    const int length =
        running ? std::snprintf(text, sizeof text, "fake GPU: %s touched %s that is no allocation's, at %p\n", running,
                                kind, info->si_addr)
                : std::snprintf(text, sizeof text, "fake GPU: the host touched %s%s, at %p\n", kind,
                                pinned ? " that is no allocation's" : "", info->si_addr);
    (void)!::write(STDERR_FILENO, text, static_cast<size_t>(length));
  }
  ::sigaction(signal, &before, nullptr);  // which runs when the instruction is tried again
}

// At every allocation, since others may have put their handlers in the place of ours.
void watch_crashes() {
  struct sigaction current {};
  ::sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == on_crash) return;
  before = current;
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

void* allocate_device_memory(size_t bytes) {
  watch_crashes();
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  char* const data = m.device.allocate(bytes);
  if (data && !m.open) m.device.protect(data, PROT_NONE);
  return data;
}

void* allocate_pinned_memory(size_t bytes) {
  watch_crashes();
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.pinned.allocate(bytes);
}

std::string free_device_memory(void* data) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.device.protect(static_cast<char*>(data), PROT_READ);
  return m.device.release(static_cast<char*>(data));
}

std::string free_pinned_memory(void* data) {
  const std::lock_guard lock(memory().mutex);
  return memory().pinned.release(static_cast<char*>(data));
}

size_t pinned_bytes(const void* data) {
  const std::lock_guard lock(memory().mutex);
  return memory().pinned.bytes_of(data);
}

MemoryKind kind_of(const void* data) {
  if (memory().device.contains(data)) return MemoryKind::device;
  return memory().pinned.contains(data) ? MemoryKind::pinned : MemoryKind::pageable;
}

std::string trouble_with(const void* data, size_t bytes, bool pinned) {
  const std::lock_guard lock(memory().mutex);
  const MemoryKind kind = kind_of(data);
  if (kind == MemoryKind::pageable || (kind == MemoryKind::pinned && !pinned)) {
    return fmt::format("{} is not device memory", fmt::ptr(data));
  }
  const Region& region = kind == MemoryKind::device ? memory().device : memory().pinned;
  if (region.holds(static_cast<const char*>(data), bytes)) return {};
  return fmt::format("{} bytes at {} do not lie in one allocation", bytes, fmt::ptr(data));
}

OpenMemory::OpenMemory(const char* what) : before_(running) {
  running = what;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  ++m.users;
  if (!m.open) m.device.protect(PROT_READ | PROT_WRITE);
  m.open = true;
}

OpenMemory::~OpenMemory() {
  running = before_;
  const std::lock_guard lock(memory().mutex);
  --memory().users;
}

void close_device_memory() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (!m.open || m.users > 0) return;
  m.device.protect(PROT_NONE);
  m.open = false;
}

}  // namespace lockstep::fake_gpu
