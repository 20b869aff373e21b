#include "lockstep/backend/deferred_backend.h"

#include <cstring>

#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
#include "test/backend/op_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::unique_ptr<Backend> deferred(std::string_view inner = "reference") {
  return make_deferred_backend(make_backend(inner, {.threads = 1}));
}

// Two streams, an event, a kernel that sums squares, and memory to do it with.
struct Bench {
  std::unique_ptr<Backend> backend = deferred();
  std::unique_ptr<Stream> compute = backend->make_stream(), transfer = backend->make_stream();
  std::unique_ptr<Event> event = backend->make_event();
  std::unique_ptr<Kernel> squares = backend->compile(UpdateOp{DType::f32, SumOfSquares{4}});
  Buffer values = backend->allocate(4 * sizeof(float)), sum = backend->allocate(sizeof(double));
  Buffer host_values = backend->allocate_pinned(4 * sizeof(float)), host_sum = backend->allocate_pinned(sizeof(double));

  void upload(float value) {
    std::fill_n(host_values.as<float>(), 4, value);
    backend->copy(*transfer, values.data(), host_values.data(), values.bytes());
  }
  void run_squares() {
    void* const in[] = {values.data()};
    void* const out[] = {sum.data()};
    squares->run({*compute, in, out, nullptr});
  }
  void download() { backend->copy(*compute, host_sum.data(), sum.data(), sizeof(double)); }
  double result() const { return *host_sum.as<double>(); }
};

}  // namespace

TEST_CASE("nothing runs before something waits for it") {
  Bench b;
  b.upload(3);
  b.transfer->record(*b.event);
  b.compute->wait_for(*b.event);
  b.run_squares();
  b.download();
  CHECK(b.values.as<float>()[0] == 0);
  CHECK(b.result() == 0);
  b.compute->wait();
  CHECK(b.result() == 36);
}

TEST_CASE("a wait runs no more of another stream than it needs") {
  Bench b;
  b.upload(3);
  b.transfer->record(*b.event);
  b.backend->copy(*b.transfer, b.host_values.data(), b.values.data(), 4);  // later, and nobody waits for it
  b.host_values.as<float>()[0] = 5;
  b.event->wait();
  CHECK(b.values.as<float>()[1] == 3);
  CHECK(b.host_values.as<float>()[0] == 5);
}

TEST_CASE("a missing wait is found when the kernel is enqueued, and named") {
  Bench b;
  b.upload(3);
  CHECK_THROWS_WITH(b.run_squares(), ContainsSubstring("SumOfSquares on stream 1 reads what was written by copy on "
                                                       "stream 2 before it"));
}

TEST_CASE("memory that a kernel still reads must not be filled again before it is done") {
  Bench b;
  b.upload(3);
  b.transfer->record(*b.event);
  b.compute->wait_for(*b.event);
  b.run_squares();
  CHECK_THROWS_WITH(b.upload(4), ContainsSubstring("copy on stream 2 overwrites what was read by SumOfSquares"));
  b.compute->record(*b.event);
  b.transfer->wait_for(*b.event);
  b.upload(5);
}

TEST_CASE("an event that was recorded too early orders nothing") {
  Bench b;
  b.transfer->record(*b.event);
  b.upload(3);
  b.compute->wait_for(*b.event);
  CHECK_THROWS_WITH(b.run_squares(), ContainsSubstring("nothing orders the two"));
}

TEST_CASE("a host that waits for a stream orders what it enqueues next") {
  Bench b;
  b.upload(3);
  b.transfer->wait();
  b.run_squares();
  b.download();
  b.compute->wait();
  CHECK(b.result() == 36);
}

TEST_CASE("an event passes by itself after a while") {
  Bench b;
  b.upload(3);
  b.upload(4);
  b.transfer->record(*b.event);
  CHECK_FALSE(b.event->passed());
  int questions = 1;
  while (!b.event->passed()) ++questions;
  CHECK(questions == 2);
  CHECK(b.backend->make_event()->passed());  // never recorded
}

TEST_CASE("memory that is not pinned is taken before a copy returns, or given") {
  Bench b;
  std::vector<float> mine = {1, 2, 3, 4};
  b.backend->copy(*b.compute, b.values.data(), mine.data(), b.values.bytes());
  mine.assign(4, 0);
  b.run_squares();
  double sum = 0;
  b.backend->copy(*b.compute, &sum, b.sum.data(), sizeof sum);
  CHECK(sum == 30);
}

TEST_CASE("a kernel that is given memory of the host is refused") {
  Bench b;
  float mine[4] = {};
  void* const in[] = {mine};
  void* const out[] = {b.sum.data()};
  CHECK_THROWS_WITH(b.squares->run({*b.compute, in, out, nullptr}), ContainsSubstring("memory of the host"));
}

TEST_CASE("captured work runs at each launch, on the contents of that moment") {
  Bench b;
  const auto work = b.backend->capture(*b.compute, [&] {
    b.compute->record(*b.event);
    b.transfer->wait_for(*b.event);
    b.backend->copy(*b.transfer, b.values.data(), b.host_values.data(), b.values.bytes());
    b.transfer->record(*b.event);
    b.compute->wait_for(*b.event);
    b.run_squares();
    b.download();
  });
  REQUIRE(work);
  b.compute->wait();
  CHECK(b.result() == 0);
  for (const float value : {2.0F, 3.0F}) {
    std::fill_n(b.host_values.as<float>(), 4, value);
    work->launch(*b.compute);
    b.compute->wait();
    CHECK(b.result() == 4 * value * value);
  }
}

TEST_CASE("the host may not wait while work is captured, nor may memory that is not pinned be copied") {
  Bench b;
  float mine = 0;
  CHECK_THROWS_WITH(b.backend->capture(*b.compute, [&] { b.compute->wait(); }), ContainsSubstring("captured"));
  CHECK_THROWS_WITH(b.backend->capture(*b.compute, [&] { b.backend->copy(*b.compute, &mine, b.sum.data(), 4); }),
                    ContainsSubstring("captured"));
  b.compute->wait();  // the failed captures left nothing behind
}

TEST_CASE("operations give the same bits late as at once") {
  const auto late = deferred("cpu"), at_once = make_backend("cpu", {.threads = 1});
  for (const OpCase& op_case : op_cases()) {
    INFO(op_case.name);
    const auto inputs = case_inputs(op_case, DType::f32);
    const auto a = run_program(*late, inputs, op_case.steps), b = run_program(*at_once, inputs, op_case.steps);
    REQUIRE(a.values.size() == b.values.size());
    for (size_t i = 0; i < a.values.size(); ++i) CHECK((a.values[i].values == b.values[i].values));
  }
}

TEST_CASE("late work is of the same graph: slices are read and written where they are at once") {
  const auto late = deferred("cpu"), at_once = make_backend("cpu", {.threads = 1});
  int slices = 0;
  for (const OpCase& op_case : op_cases()) {
    for (const Step& step : op_case.steps) {
      INFO(op_name(step.op));
      CHECK(late->writes_slice(step.op) == at_once->writes_slice(step.op));
      slices += at_once->writes_slice(step.op);
      for (size_t i = 0; i < step.inputs.size(); ++i) {
        CHECK(late->reads_slice(step.op, i) == at_once->reads_slice(step.op, i));
        slices += at_once->reads_slice(step.op, i);
      }
    }
  }
  CHECK(slices > 0);
}

TEST_CASE("a kernel on a channel slice uses these channels and no others") {
  const Format format = GENERATE(Format::blocked(8), Format::plain());
  const auto backend = deferred("cpu");
  const auto one = backend->make_stream(), other = backend->make_stream();
  const TensorDesc slice{{2, 8, 3, 3}, DType::f32, format, 16}, vector{{8}};
  const std::vector<TensorDesc> inputs{slice, vector, vector, vector, vector}, outputs{slice};
  const auto norm = backend->compile(Op{BatchNormInference{}}, inputs, outputs);
  TensorDesc whole = slice;
  whole.shape = {2, 16, 3, 3};
  whole.parent_channels = 0;
  const Buffer memory = backend->allocate(backend->storage_bytes(whole)), values = backend->allocate(8 * sizeof(float));
  const auto run = [&](Stream& stream, int64_t channel) {
    char* const at = memory.as<char>() + channel_offset_bytes(whole, channel);
    void* const in[] = {at, values.data(), values.data(), values.data(), values.data()};
    void* const out[] = {at};
    norm->run({stream, in, out, nullptr});
  };
  run(*one, 0);
  CHECK_NOTHROW(run(*other, 8));
  CHECK_THROWS_WITH(run(*other, 0), ContainsSubstring("nothing orders the two"));
}
