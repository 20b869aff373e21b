#include "app/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "app/devices.h"
#include "app/fatal.h"
#include "lockstep/backend/cpu_library.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number_ranges.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/split_words.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/rank_names.h"
#include "lockstep/config/advice.h"
#include "lockstep/config/load.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/placeholders.h"
#include "lockstep/config/sources.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/data/source/split_source.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/io/file.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/loading.h"

namespace lockstep {
namespace {

constexpr double kConfigSeconds = 60;           // the configuration's own limits are not known yet
constexpr double kReadCheckpointSeconds = 600;  // for a whole checkpoint, which contains the configuration
constexpr int64_t kProbedRecords = 1000;

CoreSharing core_sharing(const CpuCores& cores, ProcessGroup& group) {
  const std::string mask = number_ranges<int>(cores.cpus);
  const std::vector<std::string> masks = group.all_gather(mask, {"the table of cores"});
  CoreSharing sharing{.local_ranks = group.local_size(), .same_mask_ranks = 0};
  for (int r = 0; r < group.size(); ++r) {
    sharing.same_mask_ranks += masks[r] == mask && group.first_on_host()[r] == group.first_on_host()[group.rank()];
  }
  return sharing;
}

// Lists paths on rank 0 and returns them on every rank.
std::vector<std::string> list_on_root(ProcessGroup& group, const Timeout& wait,
                                      const std::function<std::vector<std::string>()>& list) {
  constexpr std::string_view kEnd("\0", 1);  // of a path: the only byte that it cannot contain
  const std::string listed = on_root(group, wait, [&] { return fmt::format("{}", fmt::join(list(), kEnd)); });
  const std::vector<std::string_view> paths = split_words(listed, kEnd.front());
  return {paths.begin(), paths.end()};
}

// Warns of data that cause no error but make the training useless.
void warn_of_odd_data(const Config& config, bool training, const DataProbe& probe) {
  if (training && config.model.classes > 1 && probe.records > 1 && probe.labels.smallest == probe.labels.largest) {
    log_warning("data.train: all of the {} records looked at have the label {}; there is nothing to tell apart",
                probe.records, probe.labels.smallest);
  }
  constexpr float kSlack = 1e-3F;
  if (config.data.normalize != "none" && probe.pixels &&
      (probe.pixels->smallest < -kSlack || probe.pixels->largest > 1 + kSlack)) {
    log_warning(
        "{}: floating-point images hold {} to {}; data.normalize = \"{}\" takes 0 to 1 for the full range: "
        "scale them, or use data.normalize = \"none\" to train on what is stored",
        training ? "data.train" : "data.validation", probe.pixels->smallest, probe.pixels->largest,
        config.data.normalize);
  }
}

// Requires equal sizes on all ranks, because ranks that see different files would run different numbers of steps.
void require_one_size(int64_t size, ProcessGroup& group, const std::string& data, const Timeout& wait) {
  const std::vector<int64_t> sizes = group.all_gather(std::span(&size, 1), wait);
  const auto other = std::ranges::find_if(sizes, [&](int64_t s) { return s != sizes.front(); });
  if (other == sizes.end()) return;
  throw AgreedError(ExitCode::data, fmt::format("{} has {} samples on {}, but {} on {}: the ranks see different files",
                                                data, sizes.front(), group.describe(0), *other,
                                                group.describe(static_cast<int>(other - sizes.begin()))));
}

// Logs the messages about the configuration itself.
void announce_choices(const LoadedConfig& loaded, int ranks) {
  for (const std::string& warning : loaded.warnings) log_warning("{}", warning);
  for (const std::string& replaced : loaded.replaced) log_info("{}", replaced);
  for (const std::string& setting : settings_without_effect(loaded)) log_info("no effect: {}", setting);
  const int64_t batch = loaded.config.train.global_batch > 0 ? loaded.config.train.global_batch
                                                             : batch_sizes(loaded.config, ranks).global;
  for (const std::string& choice : unusual_choices(loaded.config, batch)) log_info("unusual: {}", choice);
}

// For `evaluate` and `predict` without --config: uses the configuration of the checkpoint, over which environment and
// command line take precedence.
void take_configuration_of_checkpoint(const CommandLine& command, ConfigSources& sources) {
  std::string path = command.checkpoint;
  if (path == "latest") {
    const auto directory = std::ranges::find(command.overrides, "checkpoint.directory", &Assignment::name);
    require(directory != command.overrides.end(), "an evaluation without a configuration");
    path = directory->value;
  }
  const CheckpointReader file = CheckpointReader::open(checkpoint_at(path));
  sources.file_path = std::filesystem::absolute(file.path()).string();
  sources.file_text = file.config();
  sources.effective = true;
  log_info("configuration of {}", file.path());
}

// Fills in the placeholders of output paths. A directory that is new at every start is made here, because two runs may
// start within a second.
void fill_in_outputs(Config& config, const CommandLine& command, int ranks) {
  const Config given = config;
  const bool is_new = contains_time(given.checkpoint.directory);
  std::string now = log_timestamp_now().substr(0, std::string_view("2026-11-27 21:43:10").size());
  std::erase_if(now, [](char c) { return c == '-' || c == ':'; });
  std::ranges::replace(now, ' ', '-');
  const char* const job = std::getenv("SLURM_JOB_ID");
  for (int attempt = 1;; ++attempt) {
    config = given;
    fill_in_placeholders(
        config,
        {.ranks = ranks, .time = attempt == 1 ? now : fmt::format("{}-{}", now, attempt), .job = job ? job : ""});
    const std::string& directory = config.checkpoint.directory;
    if (!is_new || command.command != Command::train) return;
    make_directories(parent_directory(directory), ExitCode::checkpoint);
    if (::mkdir(directory.c_str(), 0777) == 0 || errno != EEXIST) return;
  }
}

// Checks settings that contradict a directory that is new at every start.
void check_new_directory(const Config& config, const CommandLine& command) {
  const std::string& resume = config.checkpoint.resume;
  const bool starts = command.command == Command::train || command.command == Command::check;
  if (command.checkpoint == "latest" || (starts && (resume == "must" || resume == "latest"))) {
    fail(ExitCode::config,
         "checkpoint.directory contains {{time}}, so it is new at every start and has no checkpoint: give "
         "--checkpoint.directory the directory of the run");
  }
  if (command.command == Command::train && std::getenv("SLURM_JOB_ID")) {
    log_warning(
        "checkpoint.directory contains {{time}}: when Slurm requeues this job, it starts from the beginning in another "
        "directory; {{job}} stays the same");
  }
}

// For other commands than training, the lines are their result, which no level leaves out.
void apply_log_style(const Config::Log& log, Command command) {
  const bool trains = command == Command::train || command == Command::benchmark;
  set_log_style(trains ? log.level : LogLevel::info, log.time);
}

Configured load_config_on_all(const CommandLine& command, ProcessGroup& group) {
  const bool evaluation = command.command == Command::evaluate || command.command == Command::predict;
  const bool in_checkpoint = evaluation && command.config.empty();
  const Timeout wait{"the configuration", in_checkpoint ? kReadCheckpointSeconds : kConfigSeconds};
  bool new_directory = false;
  std::unique_ptr<OnnxModel> onnx;
  const std::string text = on_root(group, wait, [&] {
    ConfigSources sources = gather_config_sources(command.config, command.overrides, [&](const std::string& path) {
      if (!is_onnx(path)) return read_definition(path);
      onnx = std::make_unique<OnnxModel>(read_onnx_model(path));
      return onnx->definition;
    });
    sources.evaluation = evaluation;
    if (in_checkpoint) take_configuration_of_checkpoint(command, sources);
    LoadedConfig loaded = load_config(sources);
    apply_log_style(loaded.config.log, command.command);
    // The configuration of a checkpoint sets every key, so it says nothing about what the user has chosen.
    if (command.command != Command::benchmark && !sources.effective) announce_choices(loaded, group.size());
    const std::string pattern = loaded.config.checkpoint.directory;
    new_directory = contains_time(pattern);
    if (new_directory) check_new_directory(loaded.config, command);
    fill_in_outputs(loaded.config, command, group.size());
    if (pattern.find('{') != std::string::npos)
      log_info("checkpoint.directory: {}", loaded.config.checkpoint.directory);
    return to_toml(loaded.config);
  });
  return {.config = config_from_toml(text, "the configuration of rank 0"),
          .new_directory = new_directory,
          .onnx = command.command == Command::train ? std::move(onnx) : nullptr};
}

// Falls back to float32 if a rank would compute in bfloat16 on a processor without instructions for it. Collective.
void settle_precision(Config& config, ProcessGroup& group) {
  if (config.train.precision != Precision::bf16) return;
  const bool on_cpu = config.device.kind == DeviceChoice::cpu ||
                      (config.device.kind == DeviceChoice::automatic && !gpu_unavailable_reason().empty());
  const std::string lacking = on_cpu && !cpu_computes_bf16() ? group.describe(group.rank()) : std::string();
  const std::vector<std::string> all = group.all_gather(lacking, {"the precision"});
  const auto first = std::ranges::find_if(all, [](const std::string& rank) { return !rank.empty(); });
  if (first == all.end()) return;
  if (group.is_root()) {
    log_warning("the processor of {} has no instructions for bfloat16 (AVX512_BF16 or AMX): computing in float32",
                *first);
  }
  config.train.precision = Precision::float32;
}

// Returns the number in OMP_NUM_THREADS, or 0 if it is not set or invalid; rank 0 warns of an invalid one. Collective.
int omp_num_threads(ProcessGroup& group) {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const std::optional<int> threads = text ? parse_omp_num_threads(text) : 0;
  const std::string ignored =
      threads ? std::string()
              : fmt::format("environment variable OMP_NUM_THREADS = '{}' is ignored: a number from 1 to {} is wanted",
                            printable(text), kMostThreads);
  warn_together(group, {"the number of threads"}, ignored);
  return threads.value_or(0);
}

}  // namespace

Configured configure(const CommandLine& command, ProcessGroup& group, Watchdog& watchdog, FatalReport& fatal_report) {
  Configured configured = load_config_on_all(command, group);
  Config& config = configured.config;
  apply_log_style(config.log, command.command);
  watchdog.set_limits(watchdog_limits(config));
  group.set_limits(wait_limits(config));
  watchdog.progress(RunPhase::start, 0);
  settle_precision(config, group);
  if (command.command == Command::benchmark) {
    fatal_report.set_report_directory(command.benchmark.log_directory);
  } else if (command.command != Command::check && command.command != Command::profile) {
    fatal_report.set_report_directory(config.checkpoint.directory);
  }
  return configured;
}

RankThreads count_threads(const Config& config, ProcessGroup& group) {
  CpuCores cores = cpu_cores();
  const int usable = usable_cores(cores, core_sharing(cores, group));
  return {std::move(cores.cpus), usable,
          thread_budget({.cores = usable,
                         .compute = static_cast<int>(config.device.threads),
                         .workers = static_cast<int>(config.data.workers),
                         .omp_num_threads = omp_num_threads(group)})};
}

void announce_threads(const RankThreads& threads, ProcessGroup& group) {
  const auto& [cpus, usable, budget] = threads;
  const std::string mine =
      fmt::format("{} usable, {}, {}", counted(usable, "core"), counted(budget.compute, "compute thread"),
                  counted(budget.workers, "loader thread"));
  const std::string pid = group.size() > kMostRankLines ? std::string() : fmt::format("pid {}, ", ::getpid());
  for (const auto& [text, ranks] : group_ranks(group.all_gather(pid + mine, {"the table of ranks"}))) {
    log_info("{}: {}", fold_ranks(ranks, group.hosts()), text);
  }
  const std::string too_many =
      budget.compute > usable
          ? fmt::format("{} compute threads on {} usable cores: lower device.threads or OMP_NUM_THREADS",
                        budget.compute, usable)
          : std::string();
  warn_together(group, {"the table of ranks"}, too_many);
}

ThreadBudget plan_threads(const Config& config, ProcessGroup& group) {
  const RankThreads threads = count_threads(config, group);
  announce_threads(threads, group);
  return threads.budget;
}

WatchdogOptions watchdog_options(const WatchdogLimits& limits) {
  return {.limits = limits,
          .warn = [](const std::string& text) { log_urgent(LogLevel::warning, text); },
          .abort = [](const std::string& text) { fatal(Error(ExitCode::stalled, text + "; the job ends")); }};
}

ModelSetup set_up_model(const Config& config, const ModelUse& use, const ThreadBudget& threads, ProcessGroup& group) {
  ModelSetup setup;
  auto [backend, shared] = choose_backend(config, threads, group);
  setup.backend = std::move(backend);
  setup.shared_devices = shared;
  log_info("compiling {}", config.model.name);
  const auto compile = [&] {
    if (setup.model) return;
    setup.stream = setup.backend->make_stream();
    const int64_t evaluation = evaluation_batch(config, group.size());
    if (use.purpose == Purpose::train) setup.batches = batch_sizes(config, group.size());
    const int64_t training = use.purpose == Purpose::train ? setup.batches.per_rank : evaluation;
    setup.model =
        std::make_unique<CompiledModel>(config, ModelBatches{training, evaluation, group.size(), group.local_size()},
                                        use.purpose, *setup.backend, *setup.stream);
  };
  if (PlanTuning* const plans = setup.backend->plan_tuning()) {
    setup.plans = agree_on_plans(group, *plans, use.plans, compile);
  }
  on_every_rank(group, {"the model"}, compile);
  return setup;
}

std::unique_ptr<DataSource> open_data(const Config& config, Split split, ProcessGroup& group) {
  const bool training = split == Split::training;
  const double held_out = config.data.validation_fraction;
  const bool from_train = training || held_out > 0;
  const auto& patterns = from_train ? config.data.train : config.data.validation;
  const Timeout wait{from_train ? "the scan of data.train" : "the scan of data.validation"};
  log_info("scanning {}", from_train ? "data.train" : "data.validation");
  DataSourceOptions options{
      .format = config.data.format,
      .files = list_on_root(group, wait, [&] { return list_inputs(config.data.format, patterns); }),
      .labels = {.classes = config.model.classes, .offset = config.data.label_offset},
      .bad_records = bad_record_rule(config)};
  options.synthetic = {.image_size = config.model.image_size, .split = training ? 0u : 1u};
  if (model_info(config.model.name).sparse) {
    options.synthetic.vocabulary = config.model.vocabulary;
    options.synthetic.max_ids = config.model.max_ids;
  }
  options.sparse = {config.data.label_key, config.data.ids_key, config.data.values_key};
  std::unique_ptr<DataSource> source;
  on_every_rank(group, wait, [&] {
    source = open_data_source(options);
    if (held_out > 0) {
      source = split_source(std::move(source), {.validation_fraction = held_out, .validation = !training});
    }
  });
  require_one_size(source->size(), group, from_train ? "data.train" : "data.validation", wait);
  on_root(group, wait, [&] {
    const DataProbe probe = probe_data(*source, kProbedRecords);
    log_info("{}: {}, labels {} to {}", training ? "training data" : "validation data", source->description(),
             probe.labels.smallest, probe.labels.largest);
    warn_of_odd_data(config, training, probe);
    return std::string();
  });
  return source;
}

std::unique_ptr<DataSource> open_given_images(const std::vector<std::string>& paths, ProcessGroup& group) {
  return open_images(list_on_root(group, {"the list of images"}, [&] { return list_images(paths); }));
}

}  // namespace lockstep
