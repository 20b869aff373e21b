// The logic around NCCL, with a library that answers as it is told; on every rank.
#include "lockstep/comm/transport/nccl_communicator.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/backend/deferred_backend.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using testing::world;

namespace {

// What the fake connection is to say, and what was done to it.
struct Script {
  std::atomic<int> questions_in_progress{0};  // before it is ready
  std::atomic<bool> fails{false};
  std::atomic<bool> others_finish{true};  // or report() stays in progress after finalize()
  std::atomic<int> finalized{0}, destroyed{0}, aborted{0};
  std::atomic<int> captured_steps{0};  // as long as there are any, an abort waits
  std::atomic<bool> abort_returned{false};
  std::vector<std::byte> id;
  std::string algorithm;
  DType half_type = DType::f32;
};

// "Sums" by copying a result over the values, on the stream it is given.
class FakeLink final : public NcclLink {
 public:
  FakeLink(Script& script, const Backend& backend, const Buffer& result)
      : script_(script), backend_(backend), result_(result) {}
  Report report() override {
    if (script_.fails) return {State::failed, "unhandled system error"};
    if (script_.finalized > 0 && !script_.others_finish) return {State::in_progress, {}};
    if (script_.questions_in_progress > 0) {
      --script_.questions_in_progress;
      return {State::in_progress, {}};
    }
    return {State::ready, {}};
  }
  void all_reduce(Stream& stream, std::span<float> values) override {
    backend_.copy(stream, values.data(), result_.data(), values.size_bytes());
  }
  void all_reduce(Stream&, std::span<double>) override { FAIL("no doubles were given"); }
  void all_reduce(Stream& stream, HalfSpan half) override {
    script_.half_type = half.type;
    backend_.copy(stream, half.values.data(), result_.data(), half.values.size_bytes());
  }
  void broadcast(Stream& stream, std::span<std::byte> bytes, int) override {
    backend_.copy(stream, bytes.data(), result_.data(), bytes.size());
  }
  void finalize() override { ++script_.finalized; }
  void destroy() noexcept override { ++script_.destroyed; }
  // As NCCL does: what is under way ends at once, but the connection only with the last captured work that uses it.
  void abort() noexcept override {
    ++script_.aborted;
    const double begin = monotonic_seconds();
    while (script_.captured_steps > 0 && monotonic_seconds() - begin < 20) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    script_.abort_returned = true;
  }

 private:
  Script& script_;
  const Backend& backend_;
  const Buffer& result_;
};

struct Bench final : NcclLibrary {
  std::vector<std::byte> make_id() override { return {std::byte{4}, std::byte{2}}; }
  std::unique_ptr<NcclLink> connect(const NcclAddress& address) override {
    script.id = address.id;
    script.algorithm = address.algorithm;
    CHECK(address.rank == world().rank());
    CHECK(address.size == world().size());
    return std::make_unique<FakeLink>(script, *backend, result);
  }
  std::unique_ptr<NcclCommunicator> communicator(double seconds = 30, ProcessGroup& group = world()) {
    return std::make_unique<NcclCommunicator>(
        group, *backend, std::shared_ptr<NcclLibrary>(std::shared_ptr<void>(), this),
        NcclOptions{.algorithm = "tree", .wait_seconds = seconds, .abort_seconds = abort_seconds});
  }
  std::span<float> floats() const { return {values.as<float>(), 4}; }

  std::unique_ptr<Backend> backend = make_deferred_backend(make_backend("reference", {.threads = 1}));
  std::unique_ptr<Stream> stream = backend->make_stream();
  Buffer values = backend->allocate(16), result = backend->allocate(16), host = backend->allocate_pinned(16);
  Script script;
  double abort_seconds = 5;
};

// False: it did not come about in time.
template <class Condition>
bool comes_about(const Condition& condition, double seconds = 30) {
  const double begin = monotonic_seconds();
  while (!condition()) {
    if (monotonic_seconds() - begin > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

template <class Call>
std::optional<Error> error_of(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace

TEST_CASE("ranks connect under rank 0's address, however long the library says that it is in progress") {
  Bench bench;
  bench.script.questions_in_progress = 5;
  const auto communicator = bench.communicator();
  CHECK(bench.script.id == std::vector<std::byte>{std::byte{4}, std::byte{2}});
  CHECK(bench.script.algorithm == "tree");
  CHECK(bench.script.questions_in_progress == 0);
  CHECK(bench.script.aborted == 0);
  CHECK(communicator->stream_ordered());
}

TEST_CASE("a connection that never stands is aborted when its time is over, with a word about the network") {
  Bench bench;
  bench.script.questions_in_progress = 1 << 30;
  const double begin = monotonic_seconds();
  const auto error = error_of([&] { bench.communicator(0.2); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::stalled);
  CHECK_THAT(error->what(), ContainsSubstring("connecting") && ContainsSubstring("not done within 0.2 s"));
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
  CHECK(monotonic_seconds() - begin < 10);
}

TEST_CASE("a connection that fails is aborted with the library's reason") {
  Bench bench;
  bench.script.fails = true;
  const auto error = error_of([&] { bench.communicator(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::internal);
  CHECK_THAT(error->what(), ContainsSubstring("unhandled system error"));
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
}

TEST_CASE(
    "an error that shows up later is found without a call, aborts what is under way, and is thrown from then on") {
  Bench bench;
  const auto communicator = bench.communicator();
  communicator->all_reduce(*bench.stream, bench.floats(), "step 1");
  communicator->wait(*bench.stream);
  bench.script.fails = true;
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
  for (int i = 0; i < 2; ++i) {
    const auto error = error_of([&] { communicator->all_reduce(*bench.stream, bench.floats(), "step 2"); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::internal);
    CHECK_THAT(error->what(), ContainsSubstring("unhandled system error"));
  }
  CHECK(error_of([&] { communicator->wait(*bench.stream); }));
  CHECK(error_of([&] { communicator->check(); }));
  bool launched = false;
  CHECK(error_of([&] { communicator->enqueue_captured([&] { launched = true; }); }));
  CHECK_FALSE(launched);
}

TEST_CASE("a connection that has failed can be replaced, and the new one works") {
  Bench bench;
  const auto communicator = bench.communicator();
  const bool fails_here = world().rank() == world().size() - 1;  // the others replace one that is well
  if (fails_here) {
    bench.script.fails = true;
    CHECK(error_of([&] { communicator->check(); }));
    bench.script.fails = false;
    CHECK(error_of([&] { communicator->check(); }));  // for good
  }
  communicator->reconnect();
  CHECK(bench.script.abort_returned);
  CHECK(bench.script.aborted == 1);
  const std::vector<float> results(4, 3.0F);
  bench.backend->copy(*bench.stream, bench.result.data(), results.data(), 16);
  communicator->all_reduce(*bench.stream, bench.floats(), "values");
  communicator->wait(*bench.stream);
  bench.backend->copy(*bench.stream, bench.host.data(), bench.values.data(), 16);
  bench.stream->wait();
  CHECK(bench.host.as<float>()[3] == 3.0F);
}

TEST_CASE("the board has a failure of the connection until another takes its place") {
  ProgressBoard board;
  board.set_rank(world().rank(), world().size());
  ProcessGroup group(testing::session(), {.wait_seconds = 30, .board = &board});
  Bench bench;
  const auto communicator = bench.communicator(30, group);
  CHECK_FALSE(board.failed_with_others());
  bench.script.fails = true;
  CHECK(error_of([&] { communicator->check(); }));
  CHECK(board.failed_with_others());
  bench.script.fails = false;
  communicator->reconnect();
  CHECK_FALSE(board.failed_with_others());
}

TEST_CASE("an operation that the library cannot enqueue in time is named, and aborted") {
  Bench bench;
  const auto communicator = bench.communicator(0.2);
  bench.script.questions_in_progress = 1 << 30;
  const auto error = error_of([&] { communicator->all_reduce(*bench.stream, bench.floats(), "step 3 bucket 2"); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::stalled);
  CHECK_THAT(error->what(), ContainsSubstring("step 3 bucket 2"));
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
}

TEST_CASE("sums start after earlier work of the stream, and later work sees them only after a join") {
  Bench bench;
  const auto communicator = bench.communicator();
  Stream& stream = *bench.stream;
  bench.backend->copy(stream, bench.values.data(), bench.host.data(), 16);
  communicator->all_reduce(stream, bench.floats(), "values");
  const auto error = error_of([&] { bench.backend->copy(stream, bench.host.data(), bench.values.data(), 16); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("nothing orders the two"));
  communicator->wait(stream);
  bench.backend->copy(stream, bench.host.data(), bench.values.data(), 16);
  CHECK(communicator->statistics().operations == 1);
  CHECK(communicator->statistics().bytes == 16);
}

TEST_CASE("sums of 16 bits carry their type to the library, and half the bytes") {
  Bench bench;
  const auto communicator = bench.communicator();
  for (const DType type : {DType::bf16, DType::f16}) {
    communicator->all_reduce(*bench.stream, HalfSpan{{bench.values.as<uint16_t>(), 4}, type}, "halves");
    communicator->wait(*bench.stream);
    CHECK(bench.script.half_type == type);
  }
  CHECK(communicator->statistics().bytes == 16);
}

TEST_CASE("a reduction can be captured with the work around it") {
  Bench bench;
  const auto communicator = bench.communicator();
  const auto work = bench.backend->capture(*bench.stream, [&] {
    communicator->all_reduce(*bench.stream, bench.floats(), "values");
    communicator->wait(*bench.stream);
    bench.backend->copy(*bench.stream, bench.host.data(), bench.values.data(), 16);
  });
  for (const float value : {1.0F, 2.0F}) {
    const std::vector<float> results(4, value);
    bench.backend->copy(*bench.stream, bench.result.data(), results.data(), 16);
    communicator->enqueue_captured([&] { work->launch(*bench.stream); });
    bench.stream->wait();
    CHECK_NOTHROW(communicator->check());
    CHECK(bench.host.as<float>()[3] == value);
  }
}

TEST_CASE("a connection without a failure is finished with the other ranks, not aborted") {
  Bench bench;
  auto communicator = bench.communicator();
  communicator->all_reduce(*bench.stream, bench.floats(), "values");
  communicator->wait(*bench.stream);
  bench.stream->wait();
  const int before = NcclCommunicator::left_behind();
  communicator.reset();
  CHECK(bench.script.finalized == 1);
  CHECK(bench.script.destroyed == 1);
  CHECK(bench.script.aborted == 0);
  CHECK(NcclCommunicator::left_behind() == before);
}

TEST_CASE("a connection that other ranks do not finish is aborted in the end") {
  Bench bench;
  bench.abort_seconds = 0.05;
  auto communicator = bench.communicator();
  SECTION("they do not come in time") { bench.script.others_finish = false; }
  SECTION("the library fails") {
    communicator->check();
    bench.script.fails = true;
  }
  const double begin = monotonic_seconds();
  communicator.reset();
  CHECK(monotonic_seconds() - begin < 10);
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
  CHECK(bench.script.destroyed == 0);
}

TEST_CASE("a failure is noticed, and ends what is under way, while the launch of captured work blocks") {
  Bench bench;
  const auto communicator = bench.communicator();
  bool aborted_meanwhile = false;
  const auto blocks = [&] {
    bench.script.fails = true;
    aborted_meanwhile = comes_about([&] { return bench.script.aborted > 0; }, 5);
  };
  SECTION("the launch returns then") {
    const auto error = error_of([&] { communicator->enqueue_captured(blocks); });
    REQUIRE(error);
    CHECK_THAT(error->what(), ContainsSubstring("unhandled system error"));
  }
  SECTION("the launch fails then") {
    const auto error = error_of([&] {
      communicator->enqueue_captured([&] {
        blocks();
        fail(ExitCode::internal, "the launch failed");
      });
    });
    REQUIRE(error);
    CHECK_THAT(error->what(), ContainsSubstring("unhandled system error"));
  }
  CHECK(aborted_meanwhile);
}

TEST_CASE("a launch of captured work that fails by itself is thrown from then on") {
  Bench bench;
  const auto communicator = bench.communicator();
  const auto launch = [] { fail(ExitCode::internal, "the launch failed"); };
  for (int i = 0; i < 2; ++i) {
    const auto error = error_of([&] { communicator->enqueue_captured(launch); });
    REQUIRE(error);
    CHECK_THAT(error->what(), ContainsSubstring("the launch failed"));
  }
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
}

TEST_CASE("a failure is reported while the library waits for a captured step before it ends the connection") {
  Bench bench;
  bench.abort_seconds = 0.05;
  auto communicator = bench.communicator(0.2);
  const auto work = bench.backend->capture(*bench.stream, [&] {
    communicator->all_reduce(*bench.stream, bench.floats(), "values");
    communicator->wait(*bench.stream);
  });
  bench.script.captured_steps = 1;
  SECTION("the thread that asks for errors finds it") {
    bench.script.fails = true;
    REQUIRE(comes_about([&] { return bench.script.aborted > 0; }));
  }
  SECTION("the thread that runs the step meets it first") {
    bench.script.fails = true;
    CHECK(error_of([&] { communicator->check(); }));
  }
  SECTION("an operation is not enqueued in time") { bench.script.questions_in_progress = 1 << 30; }
  const auto error = error_of([&] { communicator->check(); });
  REQUIRE(error);
  bool launched = false;
  CHECK(error_of([&] { communicator->enqueue_captured([&] { launched = true; }); }));
  CHECK_FALSE(launched);
  const int before = NcclCommunicator::left_behind();
  communicator.reset();
  CHECK_FALSE(bench.script.abort_returned);
  CHECK(NcclCommunicator::left_behind() == before + 1);
  bench.script.captured_steps = 0;
  CHECK(comes_about([&] { return bench.script.abort_returned.load(); }));
  CHECK(bench.script.aborted == 1);
}
