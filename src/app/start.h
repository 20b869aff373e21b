// The start of a run: everything that may refuse it, as stages in one order.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/job.h"
#include "app/preflight.h"
#include "lockstep/checkpoint/run_lock.h"
#include "lockstep/comm/group/rank_facts.h"
#include "lockstep/comm/transport/communicator.h"
#include "lockstep/train/job_end.h"
#include "lockstep/train/start_state.h"

namespace lockstep {

// `trainer` makes the stages one after another and ends with what the first of them refuses. `trainer check` makes the
// same stages, goes on after a refusal with those that can, and lists all that was found. So the two cannot differ.
//
// It owns what a run is made of, each thing after those it needs. All functions are collective.
class RunStart {
 public:
  enum class Use : uint8_t {
    train,
    check,  // nothing is deleted, and the lock of the checkpoint directory is held no longer than this object lives
  };
  RunStart(const Config& config, ProcessGroup& group, Watchdog& watchdog, Use use);

  struct Stage {
    RunPhase phase;
    void (RunStart::*make)();
    bool (RunStart::*can)() const;  // whether what it builds on is there
  };
  static std::span<const Stage> stages();

  // Makes one stage; throws AgreedError for what it refuses. Under Use::check what ranks do not have in common is added
  // to `findings` instead.
  void make(const Stage& stage);

  // All stages, for training. Throws AgreedError of the first that refuses, or with ExitCode::stopped where a stop has
  // been requested meanwhile.
  void make_all();

  bool is_root() const { return group_.is_root(); }

  // What the rank computes with, once it is connected.
  RankContext context() const;

  // What the ranks were compared by, and for Use::check what was found.
  std::vector<FactRow> rows;
  std::vector<Finding> findings;

  std::optional<RunLock> lock;  // rank 0
  JobEnd job_end;               // rank 0
  RankThreads threads;
  std::unique_ptr<DataSource> data, validation;  // validation: null where there is nothing to evaluate on
  DataIdentity identity;                         // of the training data
  std::vector<std::string> classes;              // names of the outputs, as the data have them
  std::optional<ModelSetup> setup;
  std::unique_ptr<Communicator> communicator;
  std::optional<StartState> state;

 private:
  bool always() const { return true; }
  bool has_both_data() const { return data && (validation || !has_validation(config_)); }
  bool has_data() const { return data != nullptr; }
  bool has_model() const { return setup.has_value(); }
  bool has_communicator() const { return communicator != nullptr; }

  void claim_directory();
  void compare_launch();
  void compare_programs();
  void share_cores();
  void open_training_data();
  void open_validation_data();
  void compare_classes();
  void compile();
  void connect();
  void load();
  void try_samples();

  // While it lives, the watchdog's message names the run's directory on rank 0, which uses its files.
  ScopedFileUse using_directory() const;
  void stop_if_requested();
  void compare(const std::vector<Fact>& facts);
  void note(Comparison comparison);
  void note(Finding finding);

  const Config& config_;
  ProcessGroup& group_;
  Watchdog& watchdog_;
  const Use use_;
};

}  // namespace lockstep
