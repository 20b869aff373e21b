// trainer check: a dry run of the start on every rank, with a table of the results and one exit code.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "app/commands.h"
#include "app/core_placement.h"
#include "app/devices.h"
#include "app/fatal.h"
#include "app/host_facts.h"
#include "app/job.h"
#include "app/preflight.h"
#include "app/start.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host_memory.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/parameter_audit.h"
#include "lockstep/comm/group/rank_names.h"
#include "lockstep/comm/transport/mpi_communicator.h"
#include "lockstep/io/file.h"
#include "lockstep/train/model_arrays.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMegabyte = 1e6;
constexpr double kTolerableSkewSeconds = 1;

// ---- facts of this rank

// The contents of a row. one_rank: everything, also what differs between ranks. large_job: only what many ranks have in
// common, so that they can share a row.
enum class Detail : uint8_t { one_rank, large_job };

std::string memory_text(const HostMemory& memory, Detail detail) {
  if (memory.total < 0 || memory.available < 0) return "memory unknown";
  const double total = static_cast<double>(memory.total) / kGigabyte;
  if (detail == Detail::large_job) return fmt::format("{:.0f} GB", total);
  return fmt::format("{:.1f} of {:.1f} GB free", static_cast<double>(memory.available) / kGigabyte, total);
}

std::string interfaces_text(Detail detail) {
  std::string text;
  for (const NetworkInterface& i : network_interfaces()) {
    if (i.name == "lo" || i.address.starts_with("fe80:")) continue;
    if (detail == Detail::one_rank) {
      text += fmt::format(" {}={}", i.name, i.address);
    } else if (!text.ends_with(' ' + i.name)) {  // one that has several addresses
      text += ' ' + i.name;
    }
  }
  return text.empty() ? "no interface but the loopback" : text.substr(1);
}

std::string variables_text() {
  const std::vector<std::string> variables = network_variables();
  return variables.empty() ? "none set" : fmt::format("{}", fmt::join(variables, " "));
}

// ---- measurements between ranks

// Returns how far the clock of this host is ahead of rank 0's. The smallest of several measurements counts, because
// delays by the scheduler usually increase it.
double clock_offset_seconds(ProcessGroup& group, const Timeout& wait) {
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
  bool shared = false;  // whether the ranks share memory
};

// Measures sums over all ranks in host memory, as gradients are summed without NCCL, and verifies them. Returns the
// figures of the slowest rank.
ReductionSpeed measure_reductions(ProcessGroup& group, const Timeout& wait, bool share_memory) {
  constexpr int kSmallSums = 20, kLargeSums = 5;
  constexpr size_t kLarge = size_t{1} << 20;
  const auto host = make_backend("reference", {});
  const auto stream = host->make_stream();
  MpiCommunicator communicator(group, {.abort_seconds = group.limit(), .shared_memory = share_memory});
  const auto seconds_each = [&](std::span<float> values, int times) {
    group.barrier(wait);
    const double start = monotonic_seconds();
    for (int i = 0; i < times; ++i) {
      communicator.all_reduce(*stream, values, "the check of reductions");
      communicator.wait(*stream);
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
  group.all_reduce_max(seconds, wait);
  return {seconds[0], static_cast<double>(kLarge * sizeof(float)) / std::max(seconds[1], 1e-9), shared};
}

// ---- the checkpoint directory, on rank 0

int64_t checkpoint_bytes(const Config& config, const CompiledModel& model) {
  CheckpointContents contents;
  contents.arrays =
      model_arrays(model.parameters(), model.layout(), model.state(), parse_optimizer(config.optimizer.name));
  return estimate_checkpoint_bytes(contents);
}

// Writes, syncs, renames, reads back and deletes a file, and determines the free space. Returns a line for the table.
std::string try_checkpoint_directory(const Config::Checkpoint& settings, int64_t file_bytes) {
  const std::string& directory = settings.directory;
  make_directories(directory, ExitCode::checkpoint);
  const std::vector<std::byte> probe(size_t{1} << 20, std::byte{0x5a});
  const std::string path = fmt::format("{}/check-{}", directory, ::getpid());
  const double start = monotonic_seconds();
  write_file_atomically(path, probe, {.blame = ExitCode::checkpoint, .verify = true});
  const double seconds = monotonic_seconds() - start;
  remove_file(path);
  const int64_t free = free_bytes(directory);
  const auto there = static_cast<int64_t>(find_checkpoints(directory).size());
  const int64_t kept = settings.keep > 0 ? settings.keep : there + 1;
  const int64_t files = kept + 1 - std::min(kept, there);
  if (free >= 0 && free < files * file_bytes) {
    fail(ExitCode::checkpoint,
         "{}: {:.1f} MB free, but {} more checkpoints of {:.1f} MB are to come (checkpoint.keep = {}, and one while it "
         "is written): free some space, or lower checkpoint.keep",
         directory, static_cast<double>(free) / kMegabyte, files, static_cast<double>(file_bytes) / kMegabyte,
         settings.keep);
  }
  return fmt::format(
      "{}: 1 MB written, synced and renamed in {:.3f} s; {:.1f} GB free, {} more files of {:.1f} MB to come", directory,
      seconds, static_cast<double>(free) / kGigabyte, files, static_cast<double>(file_bytes) / kMegabyte);
}

// ---- the command

// Runs the stages of a start and some measurements. Each stage adds rows to the table, or a finding.
class Check {
 public:
  Check(const Config& config, ProcessGroup& group, Watchdog& watchdog)
      : config_(config), group_(group), watchdog_(watchdog), start_(config, group, watchdog, RunStart::Use::check) {}
  int run();

 private:
  // Runs one stage with the limit of its phase. An agreed error becomes a finding, and the next stages still run.
  void stage(const std::function<void()>& work);
  void measure(std::string_view name, RunPhase phase, const std::function<void(const Timeout&)>& work);
  void row(const std::string& name, const std::string& value, bool differs = false);
  void row(const FactRow& facts);
  std::string device() const { return std::string(start_.setup ? start_.setup->backend->name() : "not known"); }
  void check_ranks(const Timeout& wait);
  void check_reductions(const Timeout& wait);
  int verdict() const;

  const Config& config_;
  ProcessGroup& group_;
  Watchdog& watchdog_;
  RunStart start_;
  std::vector<std::string> table_;
};

void Check::stage(const std::function<void()>& work) {
  try {
    work();
  } catch (const AgreedError& error) {
    const auto same = [&](const Finding& finding) { return finding.what == error.what(); };
    if (std::ranges::any_of(start_.findings, same)) return;  // two stages test the directory
    start_.findings.push_back({.blame = error.code(), .what = error.what(), .advice = {}});
  }
}

void Check::measure(std::string_view name, RunPhase phase, const std::function<void(const Timeout&)>& work) {
  watchdog_.progress(phase, 0);
  stage([&] { work({name}); });
}

void Check::row(const std::string& name, const std::string& value, bool differs) {
  table_.push_back(fmt::format("{} {:<20} {}", differs ? '*' : ' ', name, value));
}

void Check::row(const FactRow& facts) {
  row(facts.fact.name, facts.differs() ? group_by_value(facts.values, group_.hosts()) : facts.values.front(),
      facts.differs());
}

void Check::check_ranks(const Timeout& wait) {
  const double ahead = clock_offset_seconds(group_, wait);
  const auto& [cpus, cores, budget] = start_.threads;
  const Detail detail = group_.size() > kMostRankLines ? Detail::large_job : Detail::one_rank;
  const HostMemory memory = host_memory();
  std::string mine = fmt::format("{}, {} + {} threads, {}, {}, {}", counted(cores, "core"), budget.compute,
                                 budget.workers, device(), memory_text(memory, detail), interfaces_text(detail));
  if (detail == Detail::one_rank) mine = fmt::format("pid {}, {}, clock {:+.3f} s", ::getpid(), mine, ahead);
  const std::string skew = std::abs(ahead) > kTolerableSkewSeconds
                               ? fmt::format("{:.1f} s {}", std::abs(ahead), ahead > 0 ? "ahead of" : "behind")
                               : std::string();
  const std::vector<std::string> skews = group_.all_gather(skew, wait);
  for (const auto& [text, ranks] : group_ranks(group_.all_gather(mine, wait))) {
    const bool skewed = std::ranges::any_of(ranks, [&](int rank) { return !skews[rank].empty(); });
    row(fold_ranks(ranks, group_.hosts()), text, skewed);
  }
  for (const auto& [text, ranks] : group_ranks(skews)) {
    if (text.empty()) continue;
    start_.findings.push_back({.blame = ExitCode::ok,
                               .what = fmt::format("the clock of {} is {} that of {}",
                                                   fold_ranks(ranks, group_.hosts()), text, group_.describe(0)),
                               .advice = "let NTP set every host's clock; times in logs cannot be compared"});
  }
}

void Check::check_reductions(const Timeout& wait) {
  if (group_.size() == 1) return row("allreduce", "one rank: there is nothing to reduce");
  const ReductionSpeed speed = measure_reductions(group_, wait, may_share_memory(config_, device() == "cpu"));
  row("allreduce", fmt::format("{:.1f} us for one number, {:.2f} GB/s for 4 MB, {}", speed.latency_seconds * 1e6,
                               speed.bytes_per_second / kGigabyte, speed.shared ? "in shared memory" : "over MPI"));
}

// Prints the table and all findings. Returns the code of the first error, with which training would end.
int Check::verdict() const {
  ExitCode code = ExitCode::ok;
  size_t errors = 0;
  for (const std::string& line : table_) log_info("{}", line);
  for (const Finding& finding : start_.findings) {
    const bool error = finding.blame != ExitCode::ok;
    if (group_.is_root()) log_line(error ? LogLevel::error : LogLevel::warning, text_of(finding));
    if (error && code == ExitCode::ok) code = finding.blame;
    errors += error;
  }
  if (code == ExitCode::ok) {
    log_info("check passed{}", start_.findings.empty() ? "" : ", with warnings");
  } else {
    log_info("check failed: {}, exit code {}", counted(errors, "error"), static_cast<int>(code));
  }
  return static_cast<int>(code);
}

int Check::run() {
  const bool new_directory = group_.is_root() && !path_exists(config_.checkpoint.directory);
  for (const RunStart::Stage& part : RunStart::stages()) {
    stage([&] { start_.make(part); });
  }
  row("ranks", std::to_string(group_.size()));
  for (const FactRow& facts : start_.rows) row(facts);
  measure("the table of ranks", RunPhase::start, [&](const Timeout& wait) {
    const std::vector network = {Fact{"network settings", variables_text(), ExitCode::ok,
                                      "set them once, where the job starts ('mpirun --mca', 'mpirun -x')"}};
    for (const FactRow& facts : gather_facts(group_, wait, network)) {
      row(facts);
      if (auto found = difference(facts, group_.hosts())) start_.findings.push_back(std::move(*found));
    }
    check_ranks(wait);
    for (Finding& finding : placement_findings(
             group_, wait,
             {.cpus = start_.threads.cpus,
             .threads = start_.threads.budget.compute,
             .fills_host = !cpu_cores().quota && start_.setup && start_.setup->backend->host_addressable()})) {
      start_.findings.push_back(std::move(finding));
    }
  });
  measure("a small allreduce", RunPhase::start, [&](const Timeout& wait) { check_reductions(wait); });
  measure("the checkpoint directory", RunPhase::save, [&](const Timeout& wait) {
    row("checkpoints", on_root(group_, wait, [&] {
          const int64_t bytes = start_.setup ? checkpoint_bytes(config_, *start_.setup->model) : 0;
          return try_checkpoint_directory(config_.checkpoint, bytes);
        }));
  });
  start_.lock.reset();
  if (new_directory) ::rmdir(config_.checkpoint.directory.c_str());
  const int code = verdict();
  group_.barrier({"the end"});
  return code;
}

}  // namespace

int check_command(const Config& config, ProcessGroup& group, Watchdog& watchdog) {
  Check check(config, group, watchdog);
  return run_or_abort([&] { return check.run(); });
}

}  // namespace lockstep
