#include "lockstep/data/loader.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <new>
#include <optional>
#include <set>

#include "lockstep/base/activity.h"
#include "lockstep/data/probe_samples.h"
#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/data/image_writer.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::unique_ptr<DataSource> synthetic(int64_t samples, int64_t image_size = 4) {
  return open_data_source(
      {.format = "synthetic", .labels = {.classes = 10}, .synthetic = {.samples = samples, .image_size = image_size}});
}

struct BatchCopy {
  std::vector<float> images;
  std::vector<int32_t> labels;
  std::vector<float> weights;
  std::vector<int64_t> indices;
  int64_t first_position = 0;
  int64_t epoch = 0;
  bool operator==(const BatchCopy&) const = default;
};

BatchCopy copy(const Batch& batch, int64_t image_size) {
  const int64_t floats = batch.size * 3 * image_size * image_size;
  return {.images = {batch.images, batch.images + floats},
          .labels = {batch.labels, batch.labels + batch.size},
          .weights = {batch.weights, batch.weights + batch.size},
          .indices = {batch.indices, batch.indices + batch.size},
          .first_position = batch.first_position,
          .epoch = batch.epoch};
}

std::vector<BatchCopy> take(const DataSource& source, const LoaderOptions& options, int64_t calls) {
  Loader loader(source, options);
  std::vector<BatchCopy> batches;
  for (int64_t i = 0; i < calls; ++i) batches.push_back(copy(loader.next(), options.image_size));
  return batches;
}

// Gray-level images whose brightness is their index; those in `bad` are not images at all.
std::unique_ptr<DataSource> numbered(const ScratchFolder& folder, int count, const std::set<int>& bad) {
  std::vector<std::string> records;
  for (int i = 0; i < count; ++i) {
    const auto level = static_cast<uint8_t>(i);
    records.push_back(image_example(bad.contains(i) ? "GIF89a..." : flat_png(2, 2, level, level, level), i));
  }
  write_file(folder / "train-00000", frame_records(records));
  return open_data_source({.format = "tfrecord", .files = {folder / "train-00000"}, .labels = {.classes = count}});
}

}  // namespace

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

TEST_CASE("a bad record reaches next() as an error that names it, again at every later call") {
  const ScratchFolder folder;
  const auto source = numbered(folder, 12, {5, 6});
  for (const int workers : {1, 4}) {
    Loader loader(*source, {.batch_size = 4, .image_size = 2, .shuffle = false, .workers = workers});
    loader.next();
    for (int again = 0; again < 2; ++again) {
      try {
        loader.next();
        FAIL("no error");
      } catch (const Error& error) {
        CHECK(error.code() == ExitCode::data);
        CHECK_THAT(error.what(), ContainsSubstring("train-00000 record 5 (offset "));
        CHECK_THAT(error.what(), ContainsSubstring("a GIF image"));
      }
    }
  }
}

TEST_CASE("skipped records are replaced by the next good one in training and are listed") {
  const ScratchFolder folder;
  const auto source = numbered(folder, 12, {5, 6, 11});
  LoaderOptions options = {.batch_size = 12,
                           .image_size = 2,
                           .normalize = Normalize::none,
                           .shuffle = false,
                           .bad_records = BadRecords::skip};
  for (const int workers : {1, 4}) {
    options.workers = workers;
    Loader loader(*source, options);
    const BatchCopy batch = copy(loader.next(), 2);
    CHECK(batch.indices == std::vector<int64_t>{0, 1, 2, 3, 4, 7, 7, 7, 8, 9, 10, 0});
    CHECK(batch.labels[5] == 7);
    CHECK(batch.images[5 * 12] == 7.0F);
    const auto notes = loader.bad_records();
    REQUIRE(notes.size() == 3);
    CHECK(notes[0].index == 5);
    CHECK(notes[2].index == 11);
    CHECK_THAT(notes[1].message, ContainsSubstring("train-00000 record 6 (offset "));
    CHECK(notes[1].times >= 2);  // by itself and in place of record 5
  }
}

TEST_CASE("a skipped record does not count in evaluation") {
  const ScratchFolder folder;
  const auto source = numbered(folder, 6, {2});
  Loader loader(*source,
                {.training = false, .batch_size = 6, .image_size = 2, .bad_records = BadRecords::skip, .workers = 2});
  CHECK(copy(loader.next(), 2).weights == std::vector<float>{1, 1, 0, 1, 1, 1});
}

TEST_CASE("a data set of bad records only ends with an error under skip too") {
  const ScratchFolder folder;
  const auto source = numbered(folder, 3, {0, 1, 2});
  Loader loader(*source, {.batch_size = 1, .image_size = 2, .bad_records = BadRecords::skip, .workers = 1});
  CHECK_THROWS_WITH(loader.next(), ContainsSubstring("are bad"));
}

TEST_CASE("a label out of range is an error that names record, label and range, whatever the policy") {
  const ScratchFolder folder;
  for (const int64_t label : {int64_t{3}, int64_t{-1}, int64_t{1} << 40}) {
    write_file(folder / "train", frame_records({image_example(flat_png(1, 1, 0, 0, 0), label)}));
    const auto source = open_data_source({.format = "tfrecord", .files = {folder / "train"}, .labels = {.classes = 3}});
    Loader loader(*source, {.batch_size = 1, .image_size = 1, .bad_records = BadRecords::skip, .workers = 1});
    try {
      loader.next();
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::data);
      CHECK_THAT(error.what(), ContainsSubstring("train record 0 (offset 0): label " + std::to_string(label)));
      CHECK_THAT(error.what(), ContainsSubstring("0..2"));
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

namespace {

// Sparse samples of 0, 1, 2, ... ids: sample i has ids i, i - 1, ..., 1 with values of id / 2.
std::unique_ptr<DataSource> sparse(const ScratchFolder& folder, int64_t count) {
  std::vector<std::string> records;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (int64_t id = i; id > 0; --id) {
      ids.push_back(id);
      values.push_back(static_cast<float>(id) / 2);
    }
    records.push_back(sparse_example(i % 2, ids, values));
  }
  write_file(folder / "sparse", frame_records(records));
  return open_data_source({.format = "sparse_tfrecord", .files = {folder / "sparse"}, .labels = {.classes = 2}});
}

std::string first_error(const DataSource& source, const LoaderOptions& options) {
  try {
    Loader(source, options).next();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("sparse samples come as rows of ids and values that -1 ends") {
  const ScratchFolder folder;
  const auto source = sparse(folder, 4);
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

TEST_CASE("an id outside the vocabulary and too many ids end the run, with the record's name") {
  const ScratchFolder folder;
  const auto source = sparse(folder, 4);
  LoaderOptions options = {.batch_size = 4, .max_ids = 4, .vocabulary = 3, .shuffle = false, .workers = 1};
  options.bad_records = BadRecords::skip;  // does not cover it
  CHECK_THAT(first_error(*source, options),
             ContainsSubstring("sparse record 3") && ContainsSubstring("id 3 is outside the allowed range 0..2"));
  options.vocabulary = 4;
  options.max_ids = 2;
  CHECK_THAT(first_error(*source, options),
             ContainsSubstring("record 3") && ContainsSubstring("has 3 ids; model.max_ids allows 2"));
}

TEST_CASE("the first samples of a rank are probed as its loader would read them") {
  const ScratchFolder folder;
  LoaderOptions options{.world_size = 2, .batch_size = 3, .image_size = 2, .shuffle = false};
  const auto source = numbered(folder, 12, {4, 8});
  const auto probe = [&](int rank, int64_t start, BadRecords rule, bool training = true) {
    options.rank = rank;
    options.start_position = start;
    options.bad_records = rule;
    options.training = training;
    probe_samples(*source, options, 3);
  };
  CHECK_NOTHROW(probe(0, 0, BadRecords::fail));  // records 0 to 2
  CHECK_THROWS_AS(probe(1, 0, BadRecords::fail), BadRecord);
  CHECK_THROWS_AS(probe(0, 2, BadRecords::fail), BadRecord);
  CHECK_THROWS_AS(probe(1, 0, BadRecords::fail, false), BadRecord);
  CHECK_NOTHROW(probe(1, 0, BadRecords::skip));
  options.batch_size = 1;
  CHECK_NOTHROW(probe(0, 4, BadRecords::skip));  // the loader takes record 5 in its place
}

TEST_CASE("probing gives up with the loader's words where every record is bad") {
  const ScratchFolder folder;
  const auto source = numbered(folder, 3, {0, 1, 2});
  const LoaderOptions options{.batch_size = 2, .image_size = 2, .bad_records = BadRecords::skip};
  std::string words;
  try {
    Loader loader(*source, options);
    loader.next();
  } catch (const Error& error) {
    words = error.what();
  }
  CHECK(words.find("gives up here") != std::string::npos);
  CHECK_THROWS_WITH(probe_samples(*source, options, 2), words);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need all of the address space
TEST_CASE("threads that the system does not grant are an error that names the key") {
  const auto source = synthetic(50);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  std::optional<Error> error;
  {
    std::ifstream usage("/proc/self/statm");
    rlim_t pages = 0;
    REQUIRE(usage >> pages);
    const rlim_t room = rlim_t{200} << 20;  // stacks of 8 MiB
    const rlimit tight{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + room, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_AS, &tight) == 0);
    error = error_of([&] { Loader(*source, {.batch_size = 1, .image_size = 4, .workers = 1024}); });
    REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  }
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("data.workers: only ") && ContainsSubstring(" of 1024 threads can be"));
}
#endif

TEST_CASE("batches for which there is no memory are an error that names the keys") {
  const auto source = synthetic(50);
  LoaderOptions options = {.batch_size = 3, .image_size = 4, .queue_depth = 7};
  options.allocate = [](size_t) -> HostMemory { throw std::bad_alloc(); };
  const auto error = error_of([&] { Loader(*source, options); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(),
             ContainsSubstring("not enough memory for 7 batches of 3 samples") && ContainsSubstring("data.prefetch"));
}

namespace {

// Does not hand out its sample before it is told to.
class Held final : public DataSource {
 public:
  Held() : DataSource({}) {}
  int64_t size() const override { return 1; }
  std::string where(int64_t) const override { return "a.tfrecord record 0"; }
  std::string description() const override { return "held"; }
  void wait_until_held() const { held_.get_future().wait(); }
  void let_go() { go_.set_value(); }

 private:
  void fetch(int64_t, Sample& sample) const override {
    if (!first_.test_and_set()) {
      held_.set_value();
      gone_.wait();
    }
    sample.kind = Sample::Kind::u8;
    sample.buffer.assign(3, std::byte{1});
    sample.bytes = sample.buffer;
    sample.channels = 3;
    sample.height = sample.width = 1;
  }
  mutable std::atomic_flag first_ = ATOMIC_FLAG_INIT;
  mutable std::promise<void> held_;
  std::promise<void> go_;
  std::shared_future<void> gone_ = go_.get_future().share();
};

}  // namespace

TEST_CASE("the record that a thread reads is known while the read lasts") {
  Held source;
  Loader loader(source, {.batch_size = 1, .image_size = 1, .workers = 1});
  source.wait_until_held();
  const auto busy = describe_activities();
  source.let_go();
  REQUIRE(busy.size() == 1);
  CHECK_THAT(busy.front(), Catch::Matchers::StartsWith("loader thread: a.tfrecord record 0, for "));
  CHECK(loader.next().size == 1);
}
