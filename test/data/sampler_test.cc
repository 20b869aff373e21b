#include "lockstep/data/sampler.h"

#include <algorithm>
#include <limits>
#include <map>
#include <thread>

#include "test/catch.h"

using namespace lockstep;

namespace {

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> identity(int64_t size) { return epoch_order({.size = size, .shuffle = false}, 0); }

}  // namespace

TEST_CASE("every epoch's order holds each sample once, for any size and block") {
  for (int64_t size = 1; size <= 60; ++size) {
    for (const int64_t block :
         {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{100}, std::numeric_limits<int64_t>::max()}) {
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        const auto order = epoch_order({.size = size, .seed = 5, .shuffle_block = block}, epoch);
        REQUIRE(sorted(order) == identity(size));
      }
    }
  }
}

TEST_CASE("orders differ between epochs and seeds and are the same for the same") {
  const SamplerOptions options = {.size = 100, .seed = 1};
  CHECK(epoch_order(options, 0) == epoch_order(options, 0));
  CHECK(epoch_order(options, 0) != epoch_order(options, 1));
  CHECK(epoch_order(options, 0) != epoch_order({.size = 100, .seed = 2}, 0));
  CHECK(epoch_order(options, 0) != identity(100));
}

TEST_CASE("a sample is equally likely in every place") {
  std::map<int64_t, int> positions;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const auto order = epoch_order({.size = 6, .seed = seed}, 0);
    ++positions[std::find(order.begin(), order.end(), 2) - order.begin()];
  }
  for (const auto& [place, count] : positions) CHECK(std::abs(count - 1000) < 150);  // five deviations
}

TEST_CASE("blocks stay together while they and their samples are shuffled") {
  const auto order = epoch_order({.size = 95, .seed = 3, .shuffle_block = 10}, 4);
  size_t at = 0;
  std::vector<int64_t> blocks;
  while (at < order.size()) {
    const int64_t block = order[at] / 10;
    const size_t length = block == 9 ? 5 : 10;
    for (size_t i = at; i < at + length; ++i) REQUIRE(order[i] / 10 == block);
    blocks.push_back(block);
    at += length;
  }
  CHECK(blocks != identity(10));
  CHECK(sorted(blocks) == identity(10));
}

TEST_CASE("the stream is the concatenation of the epochs' orders, wherever it is entered") {
  const SamplerOptions options = {.size = 7, .seed = 9};
  std::vector<SampleRef> expected;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    for (const int64_t index : epoch_order(options, epoch)) expected.push_back({epoch, index});
  }
  const Sampler forward(options);
  const Sampler backward(options);
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(forward.at(static_cast<int64_t>(i)) == expected[i]);
    const size_t back = expected.size() - 1 - i;
    CHECK(backward.at(static_cast<int64_t>(back)) == expected[back]);
  }
}

TEST_CASE("threads in different epochs see the same stream") {
  const SamplerOptions options = {.size = 50, .seed = 4};
  const Sampler sampler(options);
  std::vector<std::vector<SampleRef>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < seen.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int64_t i = 0; i < 500; ++i) seen[t].push_back(sampler.at((i + 40 * static_cast<int64_t>(t)) % 500));
      });
    }
  }
  const Sampler single(options);
  for (size_t t = 0; t < seen.size(); ++t) {
    for (size_t i = 0; i < 500; ++i) {
      REQUIRE(seen[t][i] == single.at(static_cast<int64_t>((i + 40 * t) % 500)));
    }
  }
}

TEST_CASE("an order for which there is no memory is an error that names the number of samples") {
  for (const bool shuffle : {false, true}) {
    CHECK_THROWS_WITH(epoch_order({.size = int64_t{1} << 61, .seed = 1, .shuffle = shuffle}, 0),
                      ContainsSubstring("the data have 2305843009213693952 samples: there is not enough memory"));
  }
}
