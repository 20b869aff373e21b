// The start of a run, as stages in one order. Each stage may refuse the run.
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

// `trainer` runs the stages one after another and ends with the first error. `trainer check` runs the same stages, so
// that the two cannot differ; after an error it continues with those stages that are possible, and lists all findings.
//
// Owns the parts of a run; each may refer to those before it. All functions are collective.
class RunStart {
 public:
  enum class Use : uint8_t {
    train,
    check,    // nothing is deleted, and the lock of the checkpoint directory is held no longer than this object lives
    profile,  // from initial weights, without a checkpoint directory
  };
  // `onnx`: the model.file that rank 0 has read, whose weights the stage `load` moves from; null: none.
  RunStart(const Config& config, ProcessGroup& group, Watchdog& watchdog, Use use, OnnxModel* onnx = nullptr);

  struct Stage {
    RunPhase phase;
    void (RunStart::*make)();
    bool (RunStart::*can)() const;  // whether the parts that it needs exist
  };
  static std::span<const Stage> stages();

  // Runs one stage; throws AgreedError if it refuses the run. With Use::check, differences between ranks are added to
  // `findings` instead.
  void make(const Stage& stage);

  // Runs all stages, for training. Throws the AgreedError of the first that refuses the run, or one with
  // ExitCode::stopped if a stop was requested meanwhile.
  void make_all();

  bool is_root() const { return group_.is_root(); }

  // Returns the context of this rank. Called after the stage that makes the communicator.
  RankContext context() const;

  // The facts by which the ranks were compared and, with Use::check, the findings.
  std::vector<FactRow> rows;
  std::vector<Finding> findings;

  std::optional<RunLock> lock;  // rank 0
  JobEnd job_end;               // rank 0
  RankThreads threads;
  std::unique_ptr<DataSource> data, validation;  // validation: null if there is nothing to evaluate on
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
  bool has_directory() const { return use_ != Use::profile; }
  bool can_load() const { return has_directory() && communicator != nullptr; }

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

  // While the result exists, messages of the watchdog on rank 0 name the directory of the run, whose files it uses.
  ScopedFileUse using_directory() const;
  void stop_if_requested();
  void compare(const std::vector<Fact>& facts);
  void note(Comparison comparison);
  void note(Finding finding);

  const Config& config_;
  ProcessGroup& group_;
  Watchdog& watchdog_;
  const Use use_;
  OnnxModel* const onnx_;
};

}  // namespace lockstep
