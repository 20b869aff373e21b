#include "lockstep/train/start_state.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/checkpoint/schema.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/config/load.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/io/file.h"
#include "lockstep/models/models.h"
#include "lockstep/train/class_names.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/host_state.h"
#include "lockstep/train/initialize.h"
#include "lockstep/train/model_arrays.h"
#include "lockstep/train/optimizer.h"
#include "train/audit.h"
#include "train/checkpoint_comparison.h"
#include "train/start_weights.h"

namespace lockstep {

// How rank 0 sends its results to the other ranks.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LossScale, value, steady_steps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BestSave, score, step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BestEvaluation, score, position)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Progress, step, position, updates, loss_scale, best_evaluation, best)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StartState, progress, resumed_from, in_run_directory, classes, changes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LoadedWeights, step, epoch, has_average, classes)

namespace {

// Opens the newest intact checkpoint of the directory. `wanted_by` names the setting that requires one, for messages.
CheckpointReader open_newest(const std::string& directory, const std::string& wanted_by) {
  auto file = open_newest_whole(directory);
  if (!file) fail(ExitCode::checkpoint, "{}, but there is no checkpoint in {}", wanted_by, directory);
  return std::move(*file);
}

bool lies_in(const std::string& directory, const std::string& path) {
  std::error_code error;
  return std::filesystem::equivalent(std::filesystem::path(path).parent_path(), directory, error);
}

std::string count_text(size_t checkpoints, int64_t step) {
  return fmt::format("{} checkpoint{} (up to step {})", checkpoints, checkpoints == 1 ? "" : "s", step);
}

// Returns the checkpoints after `step`. If a run goes back to an older checkpoint of its directory, the later ones
// belong to a history that it does not share, and the next start would use the newest of them.
std::vector<std::string> later_steps(const Config::Checkpoint& config, int64_t step) {
  std::vector<std::string> later;
  int64_t last = step;
  for (const FoundCheckpoint& found : find_checkpoints(config.directory)) {
    if (found.step <= step) continue;
    later.push_back(found.path);
    last = std::max(last, found.step);
  }
  if (later.empty() || config.overwrite) return later;
  fail(ExitCode::config,
       "checkpoint.resume names step {}, but {} holds step {}, which would be taken at the next start: choose "
       "another checkpoint.directory; checkpoint.overwrite = true would delete {}",
       step, config.directory, last, count_text(later.size(), last));
}

// Returns the checkpoint from which checkpoint.resume continues, or nullopt for a fresh start.
std::optional<CheckpointReader> choose_checkpoint(const Config::Checkpoint& config) {
  const std::string& directory = config.directory;
  if (config.resume == "auto") return open_newest_whole(directory);
  if (config.resume == "must" || config.resume == "latest") {
    return open_newest(directory, fmt::format("checkpoint.resume = \"{}\"", config.resume));
  }
  if (config.resume != "never") {
    CheckpointReader file = CheckpointReader::open(checkpoint_at(config.resume));
    if (lies_in(directory, file.path())) later_steps(config, file.meta().step);
    return file;
  }
  const std::vector<FoundCheckpoint> there = find_checkpoints(directory);
  if (there.empty() || config.overwrite) return std::nullopt;
  fail(ExitCode::config,
       "{} holds checkpoints and checkpoint.resume = \"never\": choose another checkpoint.directory, or resume; "
       "checkpoint.overwrite = true would delete {}",
       directory, count_text(there.size(), there.front().step));
}

// Returns the parameters that have optimizer slots only in the file or only in this run, because train.freeze differs.
std::vector<std::string> frozen_in_one(const ParameterTable& table, const CheckpointReader& file) {
  std::vector<std::string> before, names;
  try {
    before = config_from_toml(file.config(), file.path()).train.freeze;
  } catch (const Error&) {
    return {};  // another version wrote it, with keys that this one does not know
  }
  for (const Parameter& p : table.all()) {
    if (p.kind <= ParameterKind::norm_shift && names_parameter(before, p.name) == p.trained()) names.push_back(p.name);
  }
  return names;
}

void check_fit(const Config& config, const CompiledModel& model, const CheckpointReader& file) {
  check_split(config.data, file);
  if (file.meta().model != config.model.name) {
    fail(ExitCode::config, "{} is a checkpoint of {}, model.name is {}", file.path(), printable(file.meta().model),
         config.model.name);
  }
  check_definition(config.model, file);
  match_schema(model.parameters(), file, {.group = "/model"});
  if (config.ema.decay > 0) match_schema(model.parameters(), file, {.group = "/ema"});
  SchemaOptions slots{.trained_only = true, .exclude = frozen_in_one(model.parameters(), file)};
  for (std::string_view slot : optimizer_slots(parse_optimizer(config.optimizer.name)).slots) {
    slots.group = fmt::format("/optimizer/{}", slot);
    match_schema(model.parameters(), file, slots);
  }
}

// Reads the arrays that the model has in memory, except the averages if the file has none. Slots of parameters that
// were frozen start with their initial values.
void read_arrays(const Config& config, const CompiledModel& model, const HostState& host,
                 const CheckpointReader& file) {
  const OptimizerKind optimizer = parse_optimizer(config.optimizer.name);
  const OptimizerSlots& slots = optimizer_slots(optimizer);
  const std::vector<double> initial = initial_slots(optimizer, config.optimizer.initial_accumulator);
  for (const CheckpointArray& a : model_arrays(model.parameters(), model.layout(), host.arenas(), optimizer)) {
    if (a.path.starts_with("/ema/") && !file.has("/ema")) continue;
    const std::span<float> values{a.data, static_cast<size_t>(a.shape.elements())};
    if (a.path.starts_with("/optimizer/") && !file.has(a.path)) {
      const auto slot = std::ranges::find_if(
          slots.slots, [&](std::string_view name) { return a.path.starts_with(fmt::format("/optimizer/{}/", name)); });
      std::ranges::fill(values, static_cast<float>(initial[slot - slots.slots.begin()]));
    } else {
      file.read(a.path, values);
    }
  }
}

Progress load_all(const RankContext& rank, const HostState& host, const CheckpointReader& file) {
  check_fit(rank.config, rank.model, file);
  read_arrays(rank.config, rank.model, host, file);
  return progress_in(file, rank.config, rank.model.batches().training);
}

// Collective. Runs `work`, which writes the state to the memory that it gets, on rank 0. Sends the state and the result
// of `work` to all ranks, the latter as text.
template <class Result>
Result send_from_root(const RankContext& rank, const Timeout& wait,
                      const std::function<Result(const HostState& host)>& work) {
  const std::string text = on_root(rank.group, wait, [&] {
    const HostState host(rank.model);
    host.download();  // the initial values of the optimizer slots
    const nlohmann::json result = work(host);
    host.upload();
    return result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
  for (const Buffer* b : saved_arenas(rank.model.state())) {
    rank.communicator.broadcast(rank.stream, {b->as<std::byte>(), b->bytes()}, 0, "the start state");
  }
  rank.communicator.wait(rank.stream);
  rank.stream.wait();
  return nlohmann::json::parse(text).get<Result>();
}

Timeout start_timeout(const RankContext& rank) { return {"the start state", rank.group.limit() + kRootFilesSeconds}; }

StartState start_all(const RankContext& rank, const std::function<StartState(const HostState& host)>& work) {
  StartState start = send_from_root(rank, start_timeout(rank), work);
  audit_parameters(rank.group, rank.model);
  return start;
}

Progress begin_fresh(const RankContext& rank, const HostState& host, OnnxModel* onnx = nullptr) {
  initialize_parameters(rank.config, rank.model, host);
  const std::string& init_from = rank.config.checkpoint.init_from;
  const Config::Model& model = rank.config.model;
  const bool of_model_file = init_from.empty() && model.name == kModelFile && is_onnx(model.file);
  if (of_model_file || !init_from.empty()) {
    load_start_weights(rank.config, of_model_file ? model.file : init_from, rank.model, host,
                       of_model_file ? onnx : nullptr);
  }
  if (const ModelState& state = host.arenas(); state.average_parameters.data()) {
    std::memcpy(state.average_parameters.data(), state.parameters.data(), state.parameters.bytes());
    std::memcpy(state.average_statistics.data(), state.statistics.data(), state.statistics.bytes());
  }
  return first_progress(rank.config, rank.model.batches().training);
}

}  // namespace

StartState prepare_start(const RankContext& rank, const std::vector<std::string>& data_classes,
                         const DataIdentity& data, OnnxModel* onnx) {
  return start_all(rank, [&](const HostState& host) {
    const std::string& directory = rank.config.checkpoint.directory;
    const auto file = choose_checkpoint(rank.config.checkpoint);
    if (!file) {
      const Progress progress = begin_fresh(rank, host, onnx);
      log_info("starting at step 0: no checkpoint to resume from in {}", directory);
      return StartState{.progress = progress, .classes = data_classes};
    }
    const std::vector<std::string> classes = file->classes();
    require_same_classes({file->path(), classes}, {"the data", data_classes});
    const Progress progress = load_all(rank, host, *file);
    const int64_t changes = compare_with_run(rank.config, rank.group.size(), data, *file);
    log_info("resuming at step {} from {}", progress.step, file->path());
    return StartState{.progress = progress,
                      .resumed_from = file->path(),
                      .in_run_directory = lies_in(directory, file->path()),
                      .classes = data_classes.empty() ? classes : data_classes,
                      .changes = changes};
  });
}

void delete_given_up(const RankContext& rank, const StartState& start) {
  const Config::Checkpoint& config = rank.config.checkpoint;
  if (!config.overwrite) return;
  on_root(rank.group, start_timeout(rank), [&] {
    if (config.resume == "never") {
      remove_all_checkpoints(config.directory);
    } else if (config.resume == start.resumed_from && start.in_run_directory) {
      for (const std::string& path : later_steps(config, start.progress.step)) {
        if (!remove_file(path)) fail(ExitCode::checkpoint, "{}: cannot be deleted: {}", path, errno_text(errno));
      }
    }
    return std::string();
  });
}

StartState start_afresh(const RankContext& rank) {
  return start_all(rank, [&](const HostState& host) { return StartState{.progress = begin_fresh(rank, host)}; });
}

StartState return_to_checkpoint(const RankContext& rank) {
  return start_all(rank, [&](const HostState& host) {
    const std::string& directory = rank.config.checkpoint.directory;
    const auto file = open_newest_whole(directory);
    if (!file) fail(ExitCode::numerics, "there is no checkpoint in {} to go back to", directory);
    return StartState{.progress = load_all(rank, host, *file), .resumed_from = file->path(), .in_run_directory = true};
  });
}

LoadedWeights load_for_evaluation(const RankContext& rank, const std::vector<std::string>& data_classes,
                                  const std::string& checkpoint) {
  return send_from_root<LoadedWeights>(rank, {"the checkpoint"}, [&](const HostState& host) {
    const Config& config = rank.config;
    const CheckpointReader file = checkpoint == "latest"
                                      ? open_newest(config.checkpoint.directory, "--checkpoint latest")
                                      : CheckpointReader::open(checkpoint_at(checkpoint));
    check_split(config.data, file);
    const std::vector<std::string> classes = file.classes();
    if (config.data.label_offset != 0 || !are_part_of(data_classes, classes)) {
      require_same_classes({file.path(), classes}, {"the data", data_classes});
    }
    check_definition(config.model, file);
    compare_with_evaluation(config, file);
    const bool average = config.ema.decay > 0 && file.has("/ema");
    match_schema(rank.model.parameters(), file, {.group = "/model"});
    if (average) match_schema(rank.model.parameters(), file, {.group = "/ema"});
    read_arrays(config, rank.model, host, file);
    log_info("weights of step {} from {}", file.meta().step, file.path());
    return LoadedWeights{.step = file.meta().step,
                         .epoch = static_cast<double>(file.meta().epoch),
                         .has_average = average,
                         .classes = classes};
  });
}

}  // namespace lockstep
