#include "test/fake_gpu/nccl_meeting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "test/fake_gpu/element.h"

namespace lockstep::fake_gpu {
namespace {

constexpr int kMostRanks = 8;
constexpr size_t kSlotBytes = 1 << 20;

size_t element_bytes(uint32_t type) {
  switch (type) {
    case ncclFloat64:
      return 8;
    case ncclFloat32:
      return 4;
    case ncclUint8:
      return 1;
    default:
      return 2;
  }
}

// data[i] = the sum of all ranks' i-th elements, in the order of ranks.
void add_up(uint32_t type, uint64_t count, std::byte* data, const std::function<std::byte*(int)>& slot, int size) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(i);
    if (type == ncclFloat64) {
      double sum = 0;
      for (int rank = 0; rank < size; ++rank) sum += reinterpret_cast<const double*>(slot(rank))[i];
      reinterpret_cast<double*>(data)[i] = sum;
      continue;
    }
    const Element element = type == ncclFloat32 ? Element::f32 : type == ncclBfloat16 ? Element::bf16 : Element::f16;
    float sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += read(element, slot(rank), at);
    write(element, data, at, sum);
  }
}

std::string described(const Collective& collective) {
  if (collective.kind == Collective::Kind::end_of_connection) return "the end of its connection";
  return fmt::format("{} collective of {} elements", collective.captured ? "a captured" : "a", collective.count);
}

}  // namespace

struct Meeting::Shared {
  struct alignas(64) Rank {
    std::atomic<uint64_t> turn;    // it has come to
    std::atomic<uint64_t> inside;  // the number of the collective that it is in, or 0
    Collective collective;
  };
  Rank ranks[kMostRanks];
};

Meeting::Meeting(const std::string& name, int rank, int size)
    : name_(name), rank_(rank), size_(size), bytes_(sizeof(Shared) + static_cast<size_t>(size) * kSlotBytes) {
  if (size > kMostRanks) throw std::runtime_error(fmt::format("fake NCCL has room for {} ranks", kMostRanks));
  const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0) {
    throw std::runtime_error("fake NCCL: no shared memory");
  }
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("fake NCCL: no shared memory");
  shared_ = static_cast<Shared*>(memory);
}

Meeting::~Meeting() { ::munmap(shared_, bytes_); }

std::byte* Meeting::slot(int rank) const {
  return reinterpret_cast<std::byte*>(shared_) + sizeof(Shared) + static_cast<size_t>(rank) * kSlotBytes;
}

bool Meeting::is_waited_for() const {
  return std::ranges::any_of(shared_->ranks, [&](const auto& rank) { return rank.turn.load() > turn_; });
}

bool Meeting::wait_for_all(const std::function<bool()>& goes_on) {
  shared_->ranks[rank_].turn = ++turn_;
  for (int rank = 0; rank < size_; ++rank) {
    while (shared_->ranks[rank].turn.load() < turn_) {
      if (!goes_on()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  if (turn_ == 1) ::shm_unlink(name_.c_str());  // all have it
  return true;
}

void Meeting::expect_same(const Collective& collective) const {
  for (int rank = 0; rank < size_; ++rank) {
    const Collective& other = shared_->ranks[rank].collective;
    if (other == collective) continue;
    throw std::runtime_error(fmt::format("rank {} is in {} and rank {} in {}, which is another", rank_,
                                         described(collective), rank, described(other)));
  }
}

bool Meeting::finalize(const std::function<bool()>& goes_on) {
  const Collective end{.kind = Collective::Kind::end_of_connection, .type = 0, .count = 0, .root = 0};
  shared_->ranks[rank_].collective = end;
  if (!wait_for_all(goes_on)) return false;
  expect_same(end);
  return true;
}

void Meeting::set_collective(uint64_t number) { shared_->ranks[rank_].inside = number; }

std::string Meeting::left_behind() const {
  for (int rank = 0; rank < size_; ++rank) {
    const uint64_t inside = shared_->ranks[rank].inside;
    if (rank == rank_ || inside == 0) continue;
    return fmt::format("rank {} left while rank {} is in collective {}", rank_, rank, inside);
  }
  return {};
}

bool Meeting::exchange(const Collective& collective, std::byte* data, uint64_t count,
                       const std::function<bool()>& goes_on) {
  const size_t bytes = count * element_bytes(collective.type);
  std::memcpy(slot(rank_), data, bytes);
  shared_->ranks[rank_].collective = collective;
  if (!wait_for_all(goes_on)) return false;
  expect_same(collective);
  if (collective.kind == Collective::Kind::broadcast) {
    std::memcpy(data, slot(static_cast<int>(collective.root)), bytes);
  } else {
    add_up(
        collective.type, count, data, [this](int rank) { return slot(rank); }, size_);
  }
  return wait_for_all(goes_on);  // nobody writes its slot again before all have read it
}

bool Meeting::run(const Collective& collective, void* data, const std::function<bool()>& goes_on) {
  const size_t element = element_bytes(collective.type);
  auto* at = static_cast<std::byte*>(data);
  for (uint64_t done = 0; done < collective.count;) {
    const uint64_t count = std::min<uint64_t>(kSlotBytes / element, collective.count - done);
    if (!exchange(collective, at, count, goes_on)) return false;
    done += count;
    at += count * element;
  }
  return true;
}

}  // namespace lockstep::fake_gpu
