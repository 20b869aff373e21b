// What tests share that run on every rank.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/transport/mpi_communicator.h"
#include "lockstep/train/rank_context.h"
#include "test/mpi_main.h"
#include "test/scratch.h"
#include "test/train/small_run.h"

namespace lockstep {

// One fresh directory for all ranks; rank 0 removes it. Collective, at its end too.
class SharedDirectory {
 public:
  SharedDirectory() {
    ProcessGroup& world = testing::world();
    if (world.is_root()) own_.emplace();
    path_ = world.broadcast(own_ ? own_->path() : std::string(), {"the scratch directory"});
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  ~SharedDirectory() {
    try {
      testing::world().barrier({"the end of the scratch directory"});
    } catch (const Error&) {  // another rank has failed; its test says so
    }
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::optional<ScratchDirectory> own_;
  std::string path_;
};

inline RankContext context_of(const SmallRun& run, Communicator& communicator, Watchdog& watchdog,
                              const std::atomic<bool>& stop) {
  return {.config = run.config,
          .group = testing::world(),
          .watchdog = watchdog,
          .stop_requested = stop,
          .communicator = communicator,
          .stream = *run.stream,
          .model = run.model};
}

// A small run on every rank, and what its rank runs on.
struct SmallRank {
  explicit SmallRank(Config config, Purpose purpose = Purpose::train, int64_t evaluation_batch = 4)
      : run(std::move(config), purpose, evaluation_batch) {}
  SmallRank(const SmallRank&) = delete;

  SmallRun run;
  MpiCommunicator communicator{testing::world()};
  Watchdog watchdog{WatchdogOptions{}};
  std::atomic<bool> stop{false};
  RankContext context = context_of(run, communicator, watchdog, stop);
};

// The AgreedError that `call` throws; nothing when it throws none.
template <class Call>
std::optional<Error> agreed_error_of(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const AgreedError& error) {
    return error;
  }
}

}  // namespace lockstep
