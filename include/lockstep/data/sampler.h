// The order of training samples: a pure function of (seed, epoch), the same for any number of ranks and threads.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep {

struct SamplerOptions {
  int64_t size = 0;  // samples in the data set, at least 1
  uint64_t seed = 1;
  bool shuffle = true;
  int64_t shuffle_block = 0;  // 0: full random order; N: blocks of N consecutive samples, shuffled inside as well
};

// One sample of the stream.
struct SampleRef {
  int64_t epoch = 0;
  int64_t index = 0;  // in the data set
  bool operator==(const SampleRef&) const = default;
};

// The order of one epoch: a permutation of 0..size-1.
std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch);

// The endless stream of samples: the epochs' permutations one after another. Position p is sample p mod size of epoch
// p / size. Any thread may call at(); the orders of the two epochs in use are kept.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  SampleRef at(int64_t position) const;

 private:
  struct Order {
    int64_t epoch = -1;
    std::vector<int64_t> indices;
  };

  const SamplerOptions options_;
  mutable std::mutex mutex_;
  mutable std::array<Order, 2> orders_;
};

}  // namespace lockstep
