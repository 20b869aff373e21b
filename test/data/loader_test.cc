// The order of samples in batches, and the slots that they lie in.
#include "lockstep/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "test/catch.h"
#include "test/data/loader_fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("the global stream is the same for every number of ranks, and each epoch holds each sample once") {
  for (int64_t samples = 1; samples <= 60; samples += samples < 12 ? 1 : 7) {
    const auto source = synthetic(samples, 1);
    std::vector<int64_t> reference;
    for (const int world : {1, 2, 3, 4}) {
      constexpr int64_t kGlobal = 12;
      const int64_t calls = (3 * samples + kGlobal - 1) / kGlobal;
      std::map<int64_t, int64_t> stream;
      for (int rank = 0; rank < world; ++rank) {
        Loader loader(*source, {.rank = rank,
                                .world_size = world,
                                .batch_size = kGlobal / world,
                                .image_size = 1,
                                .seed = 11,
                                .workers = 1});
        for (int64_t call = 0; call < calls; ++call) {
          const Batch batch = loader.next();
          for (int64_t i = 0; i < batch.size; ++i) stream[batch.first_position + i] = batch.indices[i];
        }
      }
      std::vector<int64_t> indices;
      for (const auto& [position, index] : stream) indices.push_back(index);
      REQUIRE(std::ssize(indices) == calls * kGlobal);
      if (world == 1) reference = indices;
      REQUIRE(indices == reference);
    }
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const auto begin = reference.begin() + epoch * samples;
      REQUIRE(std::set<int64_t>(begin, begin + samples).size() == static_cast<size_t>(samples));
    }
  }
}

TEST_CASE("accumulation splits a rank's share of the step without changing it") {
  const auto source = synthetic(40, 1);
  LoaderOptions options = {.rank = 1, .world_size = 2, .batch_size = 6, .image_size = 1, .workers = 1};
  const auto whole = take(*source, options, 2);
  options.batch_size = 2;
  options.accumulate = 3;
  const auto parts = take(*source, options, 6);
  std::vector<int64_t> joined;
  for (const BatchCopy& part : parts) joined.insert(joined.end(), part.indices.begin(), part.indices.end());
  std::vector<int64_t> expected = whole[0].indices;
  expected.insert(expected.end(), whole[1].indices.begin(), whole[1].indices.end());
  CHECK(joined == expected);
  CHECK(parts[3].first_position == whole[1].first_position);
}

TEST_CASE("batches do not depend on the number of workers or slots") {
  const auto source = synthetic(50, 9);
  for (const Augment augment : {Augment::inception, Augment::crop_flip}) {
    LoaderOptions options = {
        .batch_size = 7, .image_size = 8, .augment = augment, .seed = 3, .workers = 1, .queue_depth = 2};
    const auto one = take(*source, options, 20);
    options.workers = 4;
    options.queue_depth = 5;
    CHECK(take(*source, options, 20) == one);
    options.seed = 4;
    CHECK_FALSE(take(*source, options, 20) == one);
  }
}

TEST_CASE("batches of bytes are of the same samples as batches of images, on any number of ranks") {
  const ScratchDirectory directory;
  const auto records = numbered(directory, 7, {2});
  const auto generated = synthetic(20, 5);
  for (const bool training : {true, false}) {
    for (const auto* source : {records.get(), generated.get()}) {
      for (int rank = 0; rank < 2; ++rank) {
        LoaderOptions options = {.training = training,
                                 .rank = rank,
                                 .world_size = 2,
                                 .batch_size = 3,
                                 .image_size = 5,
                                 .normalize = Normalize::none,
                                 .bad_records = BadRecords::skip};
        Loader images(*source, options);
        options.pixels = true;
        Loader bytes(*source, options);
        for (int call = 0; call < 6; ++call) {
          const Batch expected = images.next(), batch = bytes.next();
          REQUIRE(batch.images == nullptr);
          REQUIRE(std::equal(expected.indices, expected.indices + 3, batch.indices));
          REQUIRE(std::equal(expected.labels, expected.labels + 3, batch.labels));
          REQUIRE(std::equal(expected.weights, expected.weights + 3, batch.weights));
          for (int64_t i = 0; i < 3 * 75; ++i) {
            const int64_t n = i / 75, c = i % 75 / 25, at = i % 25;
            REQUIRE(std::abs(expected.images[i] - batch.pixels[n * 75 + at * 3 + c]) < 1e-3F);
          }
          for (int64_t n = 0; n < 3; ++n) REQUIRE(batch.changes[n].mirrored == 0);
        }
      }
    }
  }
}

TEST_CASE("a loader started later delivers what the first one would have, on any number of ranks") {
  const auto source = synthetic(50, 5);
  LoaderOptions options = {.batch_size = 6, .image_size = 5, .augment = Augment::crop_flip, .workers = 2};
  const auto all = take(*source, options, 20);
  options.start_position = 17 * 6;
  CHECK(take(*source, options, 3) == std::vector(all.begin() + 17, all.end()));

  options.world_size = 2;
  options.batch_size = 3;
  options.rank = 1;
  const BatchCopy half = take(*source, options, 1).front();
  CHECK(std::equal(half.indices.begin(), half.indices.end(), all[17].indices.begin() + 3));
  CHECK(std::equal(half.images.begin(), half.images.end(), all[17].images.begin() + 3 * 3 * 25));
}

TEST_CASE("an epoch's batches carry the epoch of their first sample") {
  const auto source = synthetic(10, 1);
  const auto batches = take(*source, {.batch_size = 4, .image_size = 1, .workers = 2}, 6);
  std::vector<int64_t> epochs;
  for (const BatchCopy& batch : batches) epochs.push_back(batch.epoch);
  CHECK(epochs == std::vector<int64_t>{0, 0, 0, 1, 1, 2});
}

TEST_CASE("evaluation counts each sample once for any number of ranks and any batch, pass after pass") {
  for (const int64_t samples : {21, 23, 97}) {
    const auto source = synthetic(samples, 1);
    for (const int world : {1, 2, 3, 4}) {
      for (const int64_t batch_size : {1, 4, 7, 50}) {
        const int64_t steps = evaluation_steps(samples, world, batch_size);
        std::vector<int> counted(static_cast<size_t>(samples), 0);
        for (int rank = 0; rank < world; ++rank) {
          Loader loader(*source, {.training = false,
                                  .rank = rank,
                                  .world_size = world,
                                  .batch_size = batch_size,
                                  .image_size = 1,
                                  .workers = 1});
          for (int64_t call = 0; call < 2 * steps; ++call) {
            const Batch batch = loader.next();
            REQUIRE(batch.epoch == call / steps);
            for (int64_t i = 0; i < batch.size; ++i) {
              REQUIRE((batch.weights[i] == 1.0F) == (batch.first_position + i < samples));
              if (batch.weights[i] == 0.0F) {
                REQUIRE(batch.indices[i] == -1);
                REQUIRE(batch.images[3 * i] == 0.0F);
                continue;
              }
              REQUIRE(batch.indices[i] == batch.first_position + i);
              ++counted[static_cast<size_t>(batch.indices[i])];
            }
          }
        }
        REQUIRE(std::all_of(counted.begin(), counted.end(), [](int count) { return count == 2; }));
      }
    }
  }
}

TEST_CASE("a released slot is filled again, and a loader may go away in the middle of its work") {
  const auto source = synthetic(1000, 64);
  for (int i = 0; i < 5; ++i) {
    Loader loader(*source, {.batch_size = 16, .image_size = 64, .augment = Augment::inception, .workers = 3});
    const Batch first = loader.next();
    CHECK(reinterpret_cast<uintptr_t>(first.images) % 64 == 0);
    loader.release(first);
    CHECK(loader.next().call == 1);
    CHECK(loader.queue_depth() <= 2);
  }
}

namespace {

// One gray pixel a sample; counts those that were read.
class Counted final : public DataSource {
 public:
  Counted() : DataSource({}) {}
  int64_t size() const override { return 1000; }
  std::string where(int64_t index) const override { return fmt::format("sample {}", index); }
  std::string description() const override { return "counted"; }
  int64_t count() const { return count_; }

 private:
  void fetch(int64_t, Sample& sample) const override {
    ++count_;
    sample.kind = Sample::Kind::u8;
    sample.buffer.assign(3, std::byte{1});
    sample.bytes = sample.buffer;
    sample.channels = 3;
    sample.height = sample.width = 1;
  }
  mutable std::atomic<int64_t> count_{0};
};

}  // namespace

TEST_CASE("as many batches are prepared ahead as there are slots, and no sample more") {
  constexpr int64_t kBatch = 5;
  for (const int slots : {2, 3, 6}) {
    for (const int workers : {1, 4}) {
      const Counted source;
      Loader loader(source, {.batch_size = kBatch, .image_size = 1, .workers = workers, .queue_depth = slots});
      const auto wait_for = [&](int64_t batches) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (loader.queue_depth() < batches && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        CHECK(loader.queue_depth() == batches);
      };
      wait_for(slots);
      CHECK(source.count() == slots * kBatch);  // nothing else can be started before a slot is given back
      for (int64_t taken = 1; taken <= 3; ++taken) {
        const Batch batch = loader.next();
        wait_for(slots - 1);
        CHECK(source.count() == (slots + taken - 1) * kBatch);
        if (taken < 3) continue;
        loader.release(batch);
        wait_for(slots);
        CHECK(source.count() == (slots + taken) * kBatch);
      }
    }
  }
}

TEST_CASE("batches lie in the memory that the caller's allocator gave") {
  const auto source = synthetic(10, 2);
  std::vector<std::pair<const std::byte*, size_t>> given;
  {
    Loader loader(*source,
                  {.batch_size = 2, .image_size = 2, .workers = 1, .queue_depth = 3, .allocate = [&](size_t bytes) {
                     HostMemory memory = allocate_aligned(bytes);
                     given.emplace_back(memory.get(), bytes);
                     return memory;
                   }});
    const auto* images = reinterpret_cast<const std::byte*>(loader.next().images);
    CHECK(given.size() == 3);
    CHECK(images == given[0].first);
    CHECK(given[0].second >= 2 * 12 * sizeof(float));
  }
}

TEST_CASE("sparse samples come as rows of ids and values that -1 ends") {
  const ScratchDirectory directory;
  const auto source = sparse(directory, 4);
  Loader loader(*source,
                {.training = false, .batch_size = 5, .max_ids = 4, .vocabulary = 4, .shuffle = false, .workers = 2});
  const Batch batch = loader.next();
  CHECK(batch.images == nullptr);
  const std::vector<int32_t> ids(batch.ids, batch.ids + 20);
  CHECK(ids == std::vector<int32_t>{-1, -1, -1, -1, 1, -1, -1, -1, 2, 1, -1, -1, 3, 2, 1, -1, -1, -1, -1, -1});
  CHECK(std::vector<float>(batch.values + 12, batch.values + 16) == std::vector<float>{1.5F, 1.0F, 0.5F, 0.0F});
  CHECK(std::vector<int32_t>(batch.labels, batch.labels + 5) == std::vector<int32_t>{0, 1, 0, 1, 0});
  CHECK(std::vector<float>(batch.weights, batch.weights + 5) == std::vector<float>{1, 1, 1, 1, 0});
}
