#include "lockstep/data/sampler.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

// Fisher and Yates' shuffle. Written out because std::shuffle's result differs between standard libraries.
void shuffle(std::span<int64_t> values, RandomStream& random) {
  for (size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[random.below(left)]);
}

std::vector<int64_t> iota(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), int64_t{0});
  return values;
}

std::vector<int64_t> make_order(const SamplerOptions& options, int64_t epoch) {
  if (!options.shuffle) return iota(options.size);
  RandomStream random(random_key(options.seed, fnv1a64("epoch order"), epoch));
  if (options.shuffle_block <= 0) {
    std::vector<int64_t> order = iota(options.size);
    shuffle(order, random);
    return order;
  }
  const int64_t block = std::min(options.shuffle_block, options.size);
  std::vector<int64_t> blocks = iota((options.size + block - 1) / block);
  shuffle(blocks, random);
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(options.size));
  for (const int64_t b : blocks) {
    const size_t begin = order.size();
    for (int64_t i = b * block; i < std::min((b + 1) * block, options.size); ++i) order.push_back(i);
    shuffle(std::span(order).subspan(begin), random);
  }
  return order;
}

}  // namespace

std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch) {
  const auto too_many = [&] {
    fail(ExitCode::data, "the data have {} samples: there is not enough memory for the order of an epoch, {} bytes",
         options.size, 8.0 * static_cast<double>(options.size));
  };
  try {
    return make_order(options, epoch);
  } catch (const std::bad_alloc&) {
    too_many();
  } catch (const std::length_error&) {
    too_many();
  }
  return {};
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require(options.size > 0, "a sampler over {} samples", options.size);
}

SampleRef Sampler::at(int64_t position) const {
  require(position >= 0, "stream position {}", position);
  const int64_t epoch = position / options_.size;
  const std::lock_guard lock(mutex_);
  Order& order = orders_[epoch % 2];
  if (order.epoch != epoch) {
    order.indices = epoch_order(options_, epoch);
    order.epoch = epoch;
  }
  return {.epoch = epoch, .index = order.indices[position % options_.size]};
}

}  // namespace lockstep
