// trainer check: everything short of the first step, on every rank, with one table and one verdict.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "app/commands.h"
#include "app/devices.h"
#include "app/fatal.h"
#include "app/host_facts.h"
#include "app/job.h"
#include "app/preflight.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/dist/agreement.h"
#include "lockstep/dist/launcher.h"
#include "lockstep/dist/mpi_communicator.h"
#include "lockstep/dist/parameter_audit.h"
#include "lockstep/io/file.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/model_arrays.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMegabyte = 1e6;
constexpr double kTolerableSkewSeconds = 1;

// ---- facts of this rank

std::string memory_text(const HostRam& memory) {
  if (memory.total < 0 || memory.available < 0) return "memory unknown";
  return fmt::format("{:.1f} of {:.1f} GB free", static_cast<double>(memory.available) / kGigabyte,
                     static_cast<double>(memory.total) / kGigabyte);
}

std::string interfaces_text() {
  std::string text;
  for (const NetworkInterface& i : network_interfaces()) {
    if (i.name != "lo" && !i.address.starts_with("fe80:")) text += fmt::format(" {}={}", i.name, i.address);
  }
  return text.empty() ? "no interface but the loopback" : text.substr(1);
}

std::string variables_text() {
  std::string text;
  for (const std::string& variable : network_variables()) text += (text.empty() ? "" : " ") + variable;
  return text.empty() ? "none set" : text;
}

// Some records from all over the data set: ranks that see other files of the same length are found by them.
std::string data_digest(const DataSource& source) {
  constexpr int64_t kSamples = 16;
  std::vector<uint64_t> hashes;
  Sample sample;
  for (int64_t i = 0; i < std::min(kSamples, source.size()); ++i) {
    const int64_t index = i * source.size() / std::min(kSamples, source.size());
    try {
      source.read(index, sample);
    } catch (const BadRecord&) {
      continue;  // what becomes of those is data.bad_records' affair
    }
    hashes.push_back(hash_bytes(sample.bytes));
    hashes.push_back(static_cast<uint64_t>(sample.label));
  }
  return fmt::format("{} samples, digest {}", source.size(), digest_text(std::as_bytes(std::span(hashes))));
}

std::string model_digest(const Program& program) {
  std::string schema;
  for (ParameterId id = 0; id < program.parameters().size(); ++id) {
    schema += program.parameters()[id].name + program.parameters()[id].shape.to_string() + "\n";
  }
  return fmt::format("{} parameters, digest {}", program.parameters().trained_elements(),
                     digest_text(std::as_bytes(std::span(schema))));
}

// ---- measurements between ranks

// How far this host's clock is ahead of rank 0's. Of several tries, the one least disturbed by the scheduler.
double clock_offset_seconds(ProcessGroup& group, const WaitFor& wait) {
  constexpr int kTries = 5;
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    group.barrier(wait);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t mine = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    int64_t root = mine;
    group.broadcast(std::as_writable_bytes(std::span(&root, 1)), wait);
    const double offset = static_cast<double>(mine - root) * 1e-6;
    if (i == 0 || std::abs(offset) < std::abs(best)) best = offset;
  }
  return best;
}

struct ReductionSpeed {
  double latency_seconds = 0;
  double bytes_per_second = 0;
  bool shared = false;  // in memory that the ranks share
};

// Sums over all ranks in host memory, the way gradients travel without NCCL; the slowest rank's figures. The sums are
// checked.
ReductionSpeed measure_reductions(ProcessGroup& group, const WaitFor& wait, bool share_memory) {
  constexpr int kSmallSums = 20, kLargeSums = 5;
  constexpr size_t kLarge = size_t{1} << 20;
  const auto host = make_backend("reference", {});
  const auto stream = host->make_stream();
  MpiCommunicator communicator(group, {.abort_seconds = wait.seconds, .shared_memory = share_memory});
  const auto seconds_each = [&](std::span<float> values, int times) {
    group.barrier(wait);
    const double start = monotonic_seconds();
    for (int i = 0; i < times; ++i) {
      communicator.sum(*stream, values, "the check of reductions");
      communicator.join(*stream);
    }
    return (monotonic_seconds() - start) / times;
  };
  Buffer memory = communicator.shared_buffer(kLarge * sizeof(float));
  const bool shared = memory.data() != nullptr;
  if (!shared) memory = host->allocate(kLarge * sizeof(float));
  const std::span<float> large(memory.as<float>(), kLarge);
  std::ranges::fill(large, static_cast<float>(group.rank() + 1));
  seconds_each(large, 1);
  const auto ranks = static_cast<float>(group.size());
  const bool right = std::ranges::all_of(large, [&](float sum) { return sum == ranks * (ranks + 1) / 2; });
  agree(
      group, wait,
      right ? std::nullopt : std::optional(Error(ExitCode::internal, "a sum over the ranks is wrong; MPI is broken")));
  std::ranges::fill(large, 0.0f);
  double seconds[2] = {seconds_each(large.first(1), kSmallSums), seconds_each(large, kLargeSums)};
  group.max(seconds, wait);
  return {seconds[0], static_cast<double>(kLarge * sizeof(float)) / std::max(seconds[1], 1e-9), shared};
}

// ---- the checkpoint folder, on rank 0

int64_t checkpoint_bytes(const Config& config, const Program& program) {
  CheckpointContents contents;
  for (const ModelArray& a :
       model_arrays(program.parameters(), program.layout(), program.state(), parse_optimizer(config.optimizer.name))) {
    contents.arrays.push_back({a.path, a.shape, a.data});
  }
  return estimate_checkpoint_bytes(contents);
}

// Writes, syncs, renames, reads back and deletes a file, and counts what is free. Returns a line for the table.
std::string try_checkpoint_folder(const Config::Checkpoint& settings, int64_t file_bytes) {
  const std::string& folder = settings.directory;
  const bool existed = path_exists(folder);
  make_directories(folder, ExitCode::checkpoint);
  const std::vector<std::byte> probe(size_t{1} << 20, std::byte{0x5a});
  const std::string path = fmt::format("{}/check-{}", folder, ::getpid());
  const double start = monotonic_seconds();
  write_file_atomically(path, probe, {.blame = ExitCode::checkpoint, .verify = true});
  const double seconds = monotonic_seconds() - start;
  remove_file(path);
  const int64_t free = free_bytes(folder);
  const auto there = static_cast<int64_t>(find_checkpoints(folder).size());
  if (!existed) ::rmdir(folder.c_str());
  const int64_t kept = settings.keep > 0 ? settings.keep : there + 1;
  const int64_t files = kept + 1 - std::min(kept, there);
  if (free >= 0 && free < files * file_bytes) {
    fail(ExitCode::checkpoint,
         "{}: {:.1f} MB free, but {} more checkpoints of {:.1f} MB are to come (checkpoint.keep = {}, and one while it "
         "is written): free some space, or lower checkpoint.keep",
         folder, static_cast<double>(free) / kMegabyte, files, static_cast<double>(file_bytes) / kMegabyte,
         settings.keep);
  }
  return fmt::format(
      "{}: 1 MB written, synced and renamed in {:.3f} s; {:.1f} GB free, {} more files of {:.1f} MB to come", folder,
      seconds, static_cast<double>(free) / kGigabyte, files, static_cast<double>(file_bytes) / kMegabyte);
}

// ---- the command

// One check over all ranks: each stage adds rows to the table, or a finding.
class Check {
 public:
  Check(const Config& config, ProcessGroup& group, Watchdog& watchdog)
      : config_(config), group_(group), watchdog_(watchdog), names_(rank_names(group)) {}
  int run();

 private:
  // Runs one stage, with its phase's limit. What all ranks agree is wrong becomes a finding; the next stages go on.
  void stage(std::string_view name, RunPhase phase, const std::function<void(const WaitFor&)>& work);
  void compare(const WaitFor& wait, std::span<const Fact> facts);
  void row(const std::string& name, const std::string& value, bool differs = false);
  void check_launcher();
  void check_data(const WaitFor& wait);
  void check_model(const WaitFor& wait, const ThreadBudget& threads);
  void check_ranks(const WaitFor& wait, const RankThreads& threads);
  int verdict() const;

  const Config& config_;
  ProcessGroup& group_;
  Watchdog& watchdog_;
  const std::vector<std::string> names_;
  std::string device_ = "not known";
  std::optional<int64_t> file_bytes_;
  std::vector<std::string> table_;
  std::vector<Finding> findings_;
};

void Check::stage(std::string_view name, RunPhase phase, const std::function<void(const WaitFor&)>& work) {
  watchdog_.progress(phase, 0);
  try {
    work({name, wait_seconds(config_, phase)});
  } catch (const AgreedError& error) {
    findings_.push_back({.blame = error.code(), .what = error.what(), .advice = {}});
  }
}

void Check::row(const std::string& name, const std::string& value, bool differs) {
  table_.push_back(fmt::format("{} {:<20} {}", differs ? '*' : ' ', name, value));
}

void Check::compare(const WaitFor& wait, std::span<const Fact> facts) {
  for (const FactRow& r : gather_facts(group_, wait, facts)) {
    row(r.fact.name, r.differs() ? group_by_value(r.values, names_) : r.values.front(), r.differs());
    if (auto found = difference(r, names_)) findings_.push_back(std::move(*found));
  }
}

// Below MPI's own count there may be another: a step smaller than its job, or tasks that never came.
void Check::check_launcher() {
  const auto claim = launch_claim(process_environment());
  row("ranks", std::to_string(group_.size()));
  if (!claim || claim->processes == group_.size()) return;
  findings_.push_back({.blame = ExitCode::config,
                       .what = fmt::format("the launcher started {} processes ({}), but MPI has {} ranks",
                                           claim->processes, claim->variable, group_.size()),
                       .advice = "start all of them with one mpirun or one srun --mpi=pmix"});
}

void Check::check_data(const WaitFor& wait) {
  const auto digest = [&](Split split) {
    const auto source = open_data(config_, split, group_);
    std::string text;
    on_every_rank(group_, wait, [&] { text = data_digest(*source); });
    return text;
  };
  const std::string advice = "give every rank the same files under the same paths";
  compare(wait, std::vector{Fact{"training data", digest(Split::training), ExitCode::data, advice}});
  if (!has_validation(config_)) return;
  compare(wait, std::vector{Fact{"validation data", digest(Split::validation), ExitCode::data, advice}});
}

void Check::check_model(const WaitFor& wait, const ThreadBudget& threads) {
  const CompiledModel model = compile_model(config_, Purpose::train, threads, group_);
  device_ = model.backend->name();
  file_bytes_ = checkpoint_bytes(config_, *model.program);
  compare(wait,
          std::vector{Fact{"model", model_digest(*model.program), ExitCode::config,
                           "start the same trainer with the same configuration on every host"},
                      Fact{"device", device_, ExitCode::config, "set device.kind, or mend the ranks without one"}});
}

void Check::check_ranks(const WaitFor& wait, const RankThreads& threads) {
  const double ahead = clock_offset_seconds(group_, wait);
  const auto& [cores, budget] = threads;
  const std::string mine =
      fmt::format("pid {}, {} cores, {} + {} threads, {}, {}, clock {:+.3f} s, {}", ::getpid(), cores, budget.compute,
                  budget.workers, device_, memory_text(host_memory()), ahead, interfaces_text());
  const std::vector<std::string> lines = group_.allgather(mine, wait);
  const auto offset_us = static_cast<int64_t>(ahead * 1e6);
  const std::vector<int64_t> offsets = group_.allgather(std::span(&offset_us, 1), wait);
  for (size_t r = 0; r < lines.size(); ++r) {
    const double offset = static_cast<double>(offsets[r]) * 1e-6;
    const bool skewed = std::abs(offset) > kTolerableSkewSeconds;
    row(names_[r], lines[r], skewed);
    if (!skewed) continue;
    findings_.push_back({.blame = ExitCode::ok,
                         .what = fmt::format("the clock of {} is {:.1f} s {} that of {}", names_[r], std::abs(offset),
                                             offset > 0 ? "ahead of" : "behind", names_[0]),
                         .advice = "let NTP set every host's clock; times in logs cannot be compared"});
  }
}

// Prints the table and every finding. The code is that of the first error.
int Check::verdict() const {
  ExitCode code = ExitCode::ok;
  size_t errors = 0;
  for (const std::string& line : table_) log_info("{}", line);
  for (const Finding& finding : findings_) {
    const bool error = finding.blame != ExitCode::ok;
    const std::string text =
        finding.advice.empty() ? finding.what : fmt::format("{}; what to do: {}", finding.what, finding.advice);
    if (group_.is_root()) log_line(error ? LogLevel::error : LogLevel::warning, text);
    if (error && code == ExitCode::ok) code = finding.blame;
    errors += error;
  }
  if (code == ExitCode::ok) {
    log_info("check passed{}", findings_.empty() ? "" : ", with warnings");
  } else {
    log_info("check failed: {} error{}, exit code {}", errors, errors == 1 ? "" : "s", static_cast<int>(code));
  }
  return static_cast<int>(code);
}

int Check::run() {
  RankThreads threads;
  check_launcher();
  stage("the comparison of programs", RunPhase::start, [&](const WaitFor& wait) {
    compare(wait, program_facts(config_));
    compare(wait, std::vector{Fact{"network settings", variables_text(), ExitCode::ok,
                                   "set them once, where the job starts ('mpirun --mca', 'mpirun -x')"}});
    for (Finding& finding : network_findings(group_, wait)) findings_.push_back(std::move(finding));
    threads = count_threads(config_, group_);
  });
  stage("the comparison of data", RunPhase::scan, [&](const WaitFor& wait) { check_data(wait); });
  stage("the model", RunPhase::compile, [&](const WaitFor& wait) { check_model(wait, threads.budget); });
  stage("the table of ranks", RunPhase::start, [&](const WaitFor& wait) { check_ranks(wait, threads); });
  stage("a small allreduce", RunPhase::start, [&](const WaitFor& wait) {
    const ReductionSpeed speed = measure_reductions(group_, wait, may_share_memory(config_, device_ == "cpu"));
    row("allreduce", fmt::format("{:.1f} us for one number, {:.2f} GB/s for 4 MB, {}", speed.latency_seconds * 1e6,
                                 speed.bytes_per_second / kGigabyte, speed.shared ? "in shared memory" : "over MPI"));
  });
  stage("the checkpoint folder", RunPhase::save, [&](const WaitFor& wait) {
    row("checkpoints",
        on_root(group_, wait, [&] { return try_checkpoint_folder(config_.checkpoint, file_bytes_.value_or(0)); }));
  });
  const int code = verdict();
  group_.barrier({"the end", wait_seconds(config_, RunPhase::start)});
  return code;
}

}  // namespace

int check_command(const CommandParts& parts) {
  const auto& [command, group, watchdog, last_words] = parts;
  const Config config = load_config_on_all(command, group);
  watchdog.set_limits(watchdog_limits(config));
  Check check(config, group, watchdog);
  return run_or_end_job([&] { return check.run(); });
}

}  // namespace lockstep
