#include "lockstep/io/file_worker.h"

#include <future>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

constexpr double kPlenty = 60;  // seconds

// A disk that does not answer until it is opened: a job that stands in a call.
class Gate {
 public:
  FileJob job() {
    return {.run = [state = state_] {
      state->reached.set_value();
      state->opened.get_future().wait();
    }};
  }
  void wait_reached() { state_->reached.get_future().wait(); }
  void open() { state_->opened.set_value(); }

 private:
  struct State {
    std::promise<void> reached, opened;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

TEST_CASE("jobs run one after the other, in the order in which they were posted, on another thread") {
  FileWorker worker({.directory = "run"});
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    CHECK(worker.post({.run = [&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
    }}));
  }
  REQUIRE(worker.finish(kPlenty));
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  CHECK(thread != std::this_thread::get_id());
}

TEST_CASE("while the disk does not answer, jobs wait up to the bounds, and what is dropped is counted and reported") {
  const LogCapture log;
  int ran = 0;
  FileWorker worker({.directory = "runs/a", .max_jobs = 3, .max_bytes = 100});
  Gate gate;
  worker.post(gate.job());
  gate.wait_reached();
  const auto count = [&ran] { ++ran; };
  CHECK(worker.post({.run = count, .bytes = 60}));
  CHECK_FALSE(worker.post({.run = count, .bytes = 41}));
  CHECK(worker.post({.run = count, .bytes = 40}));
  CHECK(worker.post({.run = count}));
  CHECK_FALSE(worker.post({.run = count}));
  CHECK(worker.post({.run = count, .bytes = 1000, .required = true}));
  CHECK(worker.dropped() == 2);
  CHECK_FALSE(worker.finish(0));
  CHECK_THAT(log.text(), ContainsSubstring("runs/a: 1 writes wait for the disk; further rows and events are dropped"));
  CHECK_THAT(log.text(), !ContainsSubstring("3 writes wait"));
  gate.open();
  REQUIRE(worker.finish(kPlenty));
  CHECK(ran == 4);
  CHECK_THAT(log.text(), ContainsSubstring("runs/a: the disk answers again after"));
  CHECK_THAT(log.text(), ContainsSubstring("; 2 rows and events were dropped"));
  CHECK_THAT(log.text(), ContainsSubstring("runs/a: 2 rows and events were dropped in all"));
  CHECK(worker.post({.run = count, .bytes = 100}));
  REQUIRE(worker.finish(kPlenty));
  CHECK(ran == 5);
}

TEST_CASE("an operation that takes long is reported once, with the directory") {
  const LogCapture log;
  FileWorker worker({.directory = "runs/a", .slow_seconds = 0});
  Gate gate;
  worker.post(gate.job());
  gate.wait_reached();
  for (int i = 0; i < 3; ++i) worker.post({.run = [] {}});
  const std::string text = log.text();
  const size_t first = text.find("runs/a: no answer from the disk for");
  REQUIRE(first != std::string::npos);
  CHECK(text.find("no answer from the disk", first + 10) == std::string::npos);
  gate.open();
  CHECK(worker.finish(kPlenty));
}

TEST_CASE("what a job throws is a warning, and the next one runs") {
  const LogCapture log;
  bool ran = false;
  FileWorker worker({.directory = "run"});
  worker.post({.run = [] { fail(ExitCode::checkpoint, "the disk is on fire"); }});
  worker.post({.run = [&] { ran = true; }});
  REQUIRE(worker.finish(kPlenty));
  CHECK(ran);
  CHECK_THAT(log.text(), ContainsSubstring("the disk is on fire"));
}

TEST_CASE("a thread that a disk holds is left behind and counted") {
  const int before = FileThread::left_behind();
  Gate gate;
  {
    FileThread thread("held", gate.job().run);
    gate.wait_reached();
    CHECK_FALSE(thread.join_within(0));
  }
  CHECK(FileThread::left_behind() == before + 1);
  gate.open();
  FileThread ends("ends", [] {});
  CHECK(ends.join_within(kPlenty));
  CHECK(FileThread::left_behind() == before + 1);
}
