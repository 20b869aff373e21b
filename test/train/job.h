// A whole run on every rank, small enough for a test: what a trainer is made of, and what it leaves in its metrics.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/transport/mpi_communicator.h"
#include "lockstep/comm/transport/staged_communicator.h"
#include "lockstep/train/start_state.h"
#include "lockstep/train/trainer.h"
#include "test/train/json_rows.h"
#include "test/train/small_run.h"
#include "test/train/world.h"

namespace lockstep {

// Ranks that a test can hinder: it sees, and may spoil, what this rank adds to each sum.
class HinderedCommunicator final : public Communicator {
 public:
  explicit HinderedCommunicator(std::unique_ptr<Communicator> real) : real_(std::move(real)) {}

  std::function<void(std::string_view label, std::span<float> values)> before_sum;

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override {
    if (before_sum) before_sum(label, values);
    real_->all_reduce(stream, values, label);
  }
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override {
    real_->all_reduce(stream, values, label);
  }
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override {
    real_->all_reduce(stream, values, label);
  }
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override {
    real_->broadcast(stream, bytes, root, label);
  }
  double wait(Stream& stream) override { return real_->wait(stream); }
  CommStatistics statistics() const override { return real_->statistics(); }
  bool stream_ordered() const override { return real_->stream_ordered(); }

 private:
  std::unique_ptr<Communicator> real_;
};

// Everything a run is made of, on every rank.
struct Job {
  Job(Config c, const DataSource& data, const DataSource* validation = nullptr) : run(std::move(c)) {
    if (validation) evaluator.emplace(context, *validation);
    trainer.emplace(context, data, evaluator ? &*evaluator : nullptr, checkpointer, reporter, start.progress);
  }
  int64_t global_batch() const {
    return run.config.train.batch_size * testing::world().size() * run.config.train.accumulate;
  }

  SmallRun run;
  static std::unique_ptr<Communicator> communicator_for(const Backend& backend) {
    auto mpi = std::make_unique<MpiCommunicator>(testing::world());
    if (backend.host_addressable()) return mpi;
    return std::make_unique<StagedCommunicator>(backend, std::move(mpi));
  }
  HinderedCommunicator communicator{communicator_for(*run.backend)};
  Watchdog watchdog{WatchdogOptions{}};
  std::atomic<bool> stop{false};
  RankContext context = context_of(run, communicator, watchdog, stop);
  StartState start = prepare_start(context);
  Checkpointer checkpointer{run.config,
                            run.model,
                            {.root = testing::world().is_root(),
                             .global_batch = global_batch(),
                             .resumed_step = start.in_run_directory ? start.progress.step : -1,
                             .best = start.progress.best,
                             .stream = run.stream.get(),
                             .on_end = [this](const SaveResult& result) { reporter.checkpoint(result); }}};
  Reporter reporter{testing::world(),
                    {.every_steps = run.config.log.every_steps,
                     .jsonl = run.config.checkpoint.directory + "/metrics.jsonl",
                     .resumed_step = start.progress.step}};
  ReporterUnderTest under_test{reporter};
  std::optional<Evaluator> evaluator;
  std::optional<Trainer> trainer;
};

// The values of one field of all rows of a kind; on rank 0, where the file is.
template <class T>
std::vector<T> field(const SharedDirectory& directory, const std::string& kind, const std::string& name) {
  std::vector<T> values;
  for (const auto& row : json_rows(directory / "run/metrics.jsonl", kind)) values.push_back(row[name].get<T>());
  return values;
}

inline Config config_in(const SharedDirectory& directory) {
  Config config = small_config(directory / "run");
  config.optimizer.lr = 0.003;
  config.log.every_steps = 1;
  return config;
}

}  // namespace lockstep
