// The loader where records are bad, and where memory or threads are short.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <new>
#include <optional>

#include "lockstep/base/activity.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/probe_samples.h"
#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/data/loader_fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::string first_error(const DataSource& source, const LoaderOptions& options) {
  try {
    Loader(source, options).next();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

// Does not return its sample before it is released.
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

TEST_CASE("a bad record reaches next() as an error that names it, again at every later call") {
  const ScratchDirectory directory;
  const auto source = numbered(directory, 12, {5, 6});
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
  const ScratchDirectory directory;
  const auto source = numbered(directory, 12, {5, 6, 11});
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
  const ScratchDirectory directory;
  const auto source = numbered(directory, 6, {2});
  Loader loader(*source,
                {.training = false, .batch_size = 6, .image_size = 2, .bad_records = BadRecords::skip, .workers = 2});
  CHECK(copy(loader.next(), 2).weights == std::vector<float>{1, 1, 0, 1, 1, 1});
}

TEST_CASE("a data set of bad records only ends with an error under skip too") {
  const ScratchDirectory directory;
  const auto source = numbered(directory, 3, {0, 1, 2});
  Loader loader(*source, {.batch_size = 1, .image_size = 2, .bad_records = BadRecords::skip, .workers = 1});
  CHECK_THROWS_WITH(loader.next(), ContainsSubstring("are bad"));
}

TEST_CASE("a label out of range is an error that names record, label and range, whatever the policy") {
  const ScratchDirectory directory;
  for (const int64_t label : {int64_t{3}, int64_t{-1}, int64_t{1} << 40}) {
    write_file(directory / "train", frame_records({image_example(flat_png(1, 1, 0, 0, 0), label)}));
    const auto source =
        open_data_source({.format = "tfrecord", .files = {directory / "train"}, .labels = {.classes = 3}});
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

TEST_CASE("an id outside the vocabulary and too many ids end the run, with the record's name") {
  const ScratchDirectory directory;
  const auto source = sparse(directory, 4);
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
  const ScratchDirectory directory;
  LoaderOptions options{.world_size = 2, .batch_size = 3, .image_size = 2, .shuffle = false};
  const auto source = numbered(directory, 12, {4, 8});
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
  const ScratchDirectory directory;
  const auto source = numbered(directory, 3, {0, 1, 2});
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
