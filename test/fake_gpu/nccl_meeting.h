// Where the ranks of a fake NCCL communicator meet: shared memory, found by the communicator's unique id.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::fake_gpu {

// What all ranks must be in at the same time.
struct Collective {
  enum class Kind : uint32_t { all_reduce, broadcast, end_of_connection } kind;
  uint32_t type;  // ncclDataType_t
  uint64_t count;
  uint32_t root;
  bool captured = false;  // part of a graph, on all ranks or on none
  bool operator==(const Collective&) const = default;
};

class Meeting {
 public:
  Meeting(const std::string& name, int rank, int size);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting();

  // Waits for the other ranks while `goes_on` says so; false: it said no.
  bool wait_for_all(const std::function<bool()>& goes_on);
  // Throws std::runtime_error when ranks are in different collectives. False: given up.
  bool run(const Collective& collective, void* data, const std::function<bool()>& goes_on);
  // The end of the connection, as a collective.
  bool finalize(const std::function<bool()>& goes_on);
  // This rank is in its N-th collective until it says that it is in none: 0.
  void set_collective(uint64_t number);
  // "rank 0 left while rank 1 is in collective 7", or empty: no other rank is in one.
  std::string left_behind() const;
  // Whether a rank waits for this one.
  bool is_waited_for() const;

 private:
  struct Shared;
  std::byte* slot(int rank) const;
  void expect_same(const Collective& collective) const;
  bool exchange(const Collective& collective, std::byte* data, uint64_t count, const std::function<bool()>& goes_on);

  const std::string name_;
  const int rank_, size_;
  const size_t bytes_;
  Shared* shared_ = nullptr;
  uint64_t turn_ = 0;
};

}  // namespace lockstep::fake_gpu
