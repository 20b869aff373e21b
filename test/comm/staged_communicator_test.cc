#include "lockstep/comm/transport/staged_communicator.h"

#include "lockstep/backend/deferred_backend.h"
#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/comm/rank_threads.h"

using namespace lockstep;
using lockstep::testing::run_ranks;

namespace {

// Forwards to a rank's communicator, which a test owns.
class Borrowed final : public Communicator {
 public:
  explicit Borrowed(Communicator& other) : other_(other) {}
  int rank() const override { return other_.rank(); }
  int size() const override { return other_.size(); }
  void all_reduce(Stream& s, std::span<float> v, std::string_view l) override { other_.all_reduce(s, v, l); }
  void all_reduce(Stream& s, std::span<double> v, std::string_view l) override { other_.all_reduce(s, v, l); }
  void all_reduce(Stream& s, HalfSpan v, std::string_view l) override { other_.all_reduce(s, v, l); }
  void broadcast(Stream& s, std::span<std::byte> b, int root, std::string_view l) override {
    other_.broadcast(s, b, root, l);
  }
  double wait(Stream& s) override { return other_.wait(s); }
  CommStatistics statistics() const override { return other_.statistics(); }

 private:
  Communicator& other_;
};

// A rank with device memory of its own.
struct Rank {
  explicit Rank(Communicator& communicator) : staged(*backend, std::make_unique<Borrowed>(communicator)) {}

  template <class T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = backend->allocate(values.size() * sizeof(T));
    backend->copy(*stream, buffer.data(), values.data(), buffer.bytes());
    return buffer;
  }
  template <class T>
  std::vector<T> download(const Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    backend->copy(*stream, values.data(), buffer.data(), buffer.bytes());
    return values;
  }

  std::unique_ptr<Backend> backend = make_deferred_backend(make_backend("reference", {.threads = 1}));
  std::unique_ptr<Stream> stream = backend->make_stream();
  StagedCommunicator staged;
};

template <class T>
std::span<T> span_of(const Buffer& buffer) {
  return {buffer.as<T>(), buffer.bytes() / sizeof(T)};
}

void rethrow(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

TEST_CASE("sums and broadcasts of device memory go through the host, after earlier and before later work") {
  rethrow(run_ranks(3, 30, [](LocalCommunicator& communicator) {
    Rank rank(communicator);
    const auto mine = static_cast<float>(rank.staged.rank() + 1);
    for (int step = 1; step <= 3; ++step) {
      const auto factor = static_cast<float>(step);
      const Buffer floats = rank.upload<float>({mine * factor, 10 * mine}), doubles = rank.upload<double>({mine});
      const Buffer bytes = rank.upload<std::byte>({std::byte(rank.staged.rank()), std::byte{7}});
      rank.staged.all_reduce(*rank.stream, span_of<float>(floats), "floats");
      rank.staged.all_reduce(*rank.stream, span_of<double>(doubles), "doubles");
      rank.staged.broadcast(*rank.stream, span_of<std::byte>(bytes), 2, "bytes");
      rank.staged.wait(*rank.stream);
      require(rank.download<float>(floats) == std::vector<float>{6 * factor, 60}, "floats of step {}", step);
      require(rank.download<double>(doubles) == std::vector<double>{6}, "doubles of step {}", step);
      require(rank.download<std::byte>(bytes) == std::vector<std::byte>{std::byte{2}, std::byte{7}}, "bytes");
    }
  }));
}

TEST_CASE("numbers of 16 bits go through the host as they are") {
  rethrow(run_ranks(3, 30, [](LocalCommunicator& communicator) {
    Rank rank(communicator);
    const float mine = 0.25F * static_cast<float>(rank.staged.rank() + 1);
    const Buffer values = rank.upload<uint16_t>({to_f16(mine), to_f16(-2)});
    rank.staged.all_reduce(*rank.stream, HalfSpan{span_of<uint16_t>(values), DType::f16}, "values");
    rank.staged.wait(*rank.stream);
    require(rank.download<uint16_t>(values) == std::vector{to_f16(1.5F), to_f16(-6)}, "the sums");
  }));
}

TEST_CASE("a sum in the middle of a step is there before later work, and leaves the memory of other sums alone") {
  rethrow(run_ranks(2, 30, [](LocalCommunicator& communicator) {
    Rank rank(communicator);
    const Buffer bucket = rank.upload<float>({1, 2, 3}), small = rank.upload<float>({5});
    for (int repeat = 1; repeat <= 3; ++repeat) {
      rank.staged.all_reduce_now(*rank.stream, span_of<float>(small), "small");
      require(rank.download<float>(small) == std::vector<float>{5.0F * static_cast<float>(1 << repeat)}, "small");
    }
    rank.staged.all_reduce(*rank.stream, span_of<float>(bucket), "bucket");
    rank.staged.wait(*rank.stream);
    require(rank.download<float>(bucket) == std::vector<float>{2, 4, 6}, "bucket");
  }));
}

TEST_CASE("memory that is on its way must not be changed before the join, afterwards it may be") {
  rethrow(run_ranks(2, 30, [](LocalCommunicator& communicator) {
    Rank rank(communicator);
    const Buffer values = rank.upload<float>({1, 2, 3}), sums = rank.upload<float>({0, 0, 0});
    const auto add = rank.backend->compile(UpdateOp{DType::f32, AddToSums{3}});
    void* const in[] = {sums.data()};
    void* const out[] = {values.data()};
    rank.staged.all_reduce(*rank.stream, span_of<float>(values), "values");
    bool found = false;
    try {
      add->run({*rank.stream, in, out});
    } catch (const Error& error) {
      found = std::string(error.what()).find("overwrites what was read by copy") != std::string::npos;
    }
    require(found, "the kernel was not stopped");
    rank.staged.wait(*rank.stream);
  }));
}

TEST_CASE("a single rank's memory stays where it is") {
  rethrow(run_ranks(1, 30, [](LocalCommunicator& communicator) {
    Rank rank(communicator);
    const Buffer values = rank.upload<float>({5});
    rank.staged.all_reduce(*rank.stream, span_of<float>(values), "values");
    require(rank.staged.wait(*rank.stream) == 0 && rank.staged.stream_ordered(), "a wait");
    require(rank.download<float>(values) == std::vector<float>{5}, "value");
  }));
}
