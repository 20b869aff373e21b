// A job that fails in the way its argument says, for tests of how it ends. Ranks end as the trainer does: an agreed
// error is printed by rank 0 and leaves by finalizing, any other is printed by its rank and aborts the job.
#include <unistd.h>

#include <csignal>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/mpi_session.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/heartbeats.h"
#include "lockstep/comm/transport/mpi_communicator.h"
#include "test/comm/test_stream.h"

using namespace lockstep;

namespace {

constexpr double kShortWait = 1;

void hang() {
  while (true) pause();
}

void last_rank_misses_barrier(ProcessGroup& group) {
  if (group.rank() == group.size() - 1) hang();
  group.barrier({.what = "the first step", .seconds = kShortWait});
}

void root_misses_barrier(ProcessGroup& group) {
  if (group.is_root()) hang();
  group.barrier({.what = "the first step", .seconds = kShortWait});
}

void calls_differ(ProcessGroup& group) {
  int64_t value = 0;
  if (group.rank() == 1) group.all_reduce_sum(std::span(&value, 1), {.what = "a count"});
  group.barrier({.what = "the first step"});
}

void last_rank_misses_sum(ProcessGroup& group) {
  MpiCommunicator communicator(group, {.abort_seconds = kShortWait});
  lockstep::testing::IdleStream stream;
  std::vector<float> values(200'000);
  communicator.all_reduce(stream, std::span(values).first(1000), "step 7 bucket 1");
  if (group.rank() == group.size() - 1) {
    communicator.wait(stream);
    hang();
  }
  communicator.all_reduce(stream, std::span(values).subspan(1000), "step 7 bucket 2");
  communicator.wait(stream);
}

void last_rank_misses_shared_sum(ProcessGroup& group) {
  MpiCommunicator communicator(group, {.abort_seconds = kShortWait, .shared_memory = true});
  lockstep::testing::IdleStream stream;
  const Buffer memory = communicator.shared_buffer(800'000);
  const std::span<float> values(memory.as<float>(), 200'000);
  communicator.all_reduce(stream, values.first(1000), "step 7 bucket 1");
  if (group.rank() == group.size() - 1) {
    communicator.wait(stream);
    hang();
  }
  communicator.all_reduce(stream, values.subspan(1000), "step 7 bucket 2");
  communicator.wait(stream);
}

void last_rank_is_killed_amid_shared_sums(ProcessGroup& group) {
  MpiCommunicator communicator(group, {.shared_memory = true});
  lockstep::testing::IdleStream stream;
  const Buffer memory = communicator.shared_buffer(40'000'000);
  const std::span<float> values(memory.as<float>(), 10'000'000);
  if (group.rank() == group.size() - 1) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      raise(SIGKILL);
    }).detach();
  }
  while (true) {
    communicator.all_reduce(stream, values, "a large sum");
    communicator.wait(stream);
  }
}

void configuration_is_wrong(ProcessGroup& group) {
  on_root(group, {.what = "the configuration"},
          []() -> std::string { fail(ExitCode::config, "run.toml:3: unknown key"); });
}

void last_rank_fails(ProcessGroup& group) {
  if (group.rank() == group.size() - 1) fail(ExitCode::data, "shard 3 is truncated");
  group.barrier({.what = "the first step"});
}

void thread_aborts(ProcessGroup& group) {
  if (group.rank() == group.size() - 1) std::thread([] { abort_job(static_cast<int>(ExitCode::checkpoint)); }).detach();
  hang();
}

void abort_with_zero(ProcessGroup& group) {
  if (group.is_root()) abort_job(0);
  hang();
}

// Unwinds all owners without an agreed ending, as a missing catch would.
void leaves_early(ProcessGroup& group) {
  if (group.rank() != group.size() - 1) group.barrier({.what = "the first step"});
}

const std::map<std::string, std::function<void(ProcessGroup&)>> kFailures = {
    {"last_rank_misses_barrier", last_rank_misses_barrier},
    {"root_misses_barrier", root_misses_barrier},
    {"calls_differ", calls_differ},
    {"last_rank_misses_sum", last_rank_misses_sum},
    {"last_rank_misses_shared_sum", last_rank_misses_shared_sum},
    {"last_rank_is_killed_amid_shared_sums", last_rank_is_killed_amid_shared_sums},
    {"configuration_is_wrong", configuration_is_wrong},
    {"last_rank_fails", last_rank_fails},
    {"thread_aborts", thread_aborts},
    {"abort_with_zero", abort_with_zero},
    {"leaves_early", leaves_early},
};

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  try {
    ProgressBoard board;
    const Heartbeats heartbeats(session, board);
    ProcessGroup group(session, {.wait_seconds = 30, .board = &board});
    set_log_identity(group.rank(), group.size(), group.host());
    try {
      kFailures.at(argc > 1 ? argv[1] : "")(group);
    } catch (const AgreedError& error) {
      if (group.is_root()) log_error("{}", error.what());
      session.finish();
      return static_cast<int>(error.code());
    }
    return 9;  // the early leaver's; nobody else gets here
  } catch (const Error& error) {
    log_error("{}", error.what());
    abort_job(static_cast<int>(error.code()));
  }
}
