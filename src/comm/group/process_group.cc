#include "lockstep/comm/group/process_group.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "comm/group/process_group_state.h"
#include "comm/group/roll_call.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group/mpi_session.h"

namespace lockstep {
namespace {

constexpr int64_t kBytesPerCall = int64_t{1} << 30;  // MPI counts are int

double seconds_of(const ProcessGroupState& group, const Timeout& wait) {
  if (wait.seconds > 0) return wait.seconds;
  const RunPhase phase = group.board ? group.board->own().phase : RunPhase::train;
  return group.limits[static_cast<size_t>(phase)];
}

// Performs one exchange: a roll call, start(buffer, request) on a copy of `bytes`, the wait, and the copy back. It
// works on a copy because MPI may still write to the buffer after a timeout; the copy is then leaked on purpose.
template <class Start>
void exchange(ProcessGroupState& group, std::string_view operation, const Timeout& wait, std::span<std::byte> bytes,
              Start start) {
  const std::string name = fmt::format("{} for {}", operation, wait.what);
  const double seconds = seconds_of(group, wait);
  const int64_t number = roll_call(group, name, seconds);
  auto buffer = std::make_unique<std::byte[]>(bytes.size());
  std::ranges::copy(bytes, buffer.get());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(start(buffer.get(), &request), name);
  const ScopedWait waiting(group.board, {CollectiveKind::exchange, number, name});
  Deadline deadline(seconds);
  if (!wait_all({&request, 1}, deadline, name)) {
    (void)buffer.release();
    group.broken = true;
    fail(ExitCode::stalled, "{}: a rank stopped in the middle of it (no end within {:g} s){}", name, seconds,
         who_is_behind(group));
  }
  std::copy_n(buffer.get(), bytes.size(), bytes.begin());
}

struct Reduction {
  std::string_view name;
  MPI_Datatype type;
  MPI_Op op;
};

template <class T>
void all_reduce(ProcessGroupState& group, const Reduction& reduction, std::span<T> values, const Timeout& wait) {
  if (group.size == 1) return;
  exchange(group, reduction.name, wait, std::as_writable_bytes(values), [&](std::byte* buffer, MPI_Request* request) {
    return MPI_Iallreduce(MPI_IN_PLACE, buffer, static_cast<int>(values.size()), reduction.type, reduction.op,
                          group.comm.get(), request);
  });
}

std::string processor_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "host name");
  return std::string(name.data(), static_cast<size_t>(length));
}

}  // namespace

ProcessGroup::ProcessGroup(const MpiSession&, ProcessGroupOptions options)
    : state_(std::make_unique<ProcessGroupState>()) {
  ProcessGroupState& group = *state_;
  group.limits.fill(options.wait_seconds);
  group.board = options.board;
  group.comm = duplicate(MPI_COMM_WORLD, options.wait_seconds, "first contact of the ranks");
  check_mpi(MPI_Comm_rank(group.comm.get(), &group.rank), "rank");
  check_mpi(MPI_Comm_size(group.comm.get(), &group.size), "number of ranks");
  MPI_Comm local = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(group.comm.get(), MPI_COMM_TYPE_SHARED, group.rank, MPI_INFO_NULL, &local),
            "ranks of this host");
  const CommHandle local_owner(local);
  check_mpi(MPI_Comm_rank(local, &group.local_rank), "local rank");
  check_mpi(MPI_Comm_size(local, &group.local_size), "number of local ranks");
  int64_t first = group.rank;
  check_mpi(MPI_Bcast(&first, 1, MPI_INT64_T, 0, local), "first rank of this host");
  group.first_on_host = all_gather(std::span<const int64_t>(&first, 1), {.what = "the ranks of every host"});
  group.hosts = all_gather(processor_name(), {.what = "host names"});
  if (group.board) group.board->set_hosts(group.hosts);
}

ProcessGroup::ProcessGroup(std::unique_ptr<ProcessGroupState> state) : state_(std::move(state)) {}

ProcessGroup ProcessGroup::self(const ProcessGroup& job) {
  auto state = std::make_unique<ProcessGroupState>();
  state->limits = job.state().limits;
  state->hosts = {job.host()};
  return ProcessGroup(std::move(state));
}

ProcessGroup::~ProcessGroup() {
  if (state_->broken) (void)state_->comm.release();  // operations are still pending on it
}

int ProcessGroup::rank() const { return state_->rank; }
int ProcessGroup::size() const { return state_->size; }
int ProcessGroup::local_rank() const { return state_->local_rank; }
int ProcessGroup::local_size() const { return state_->local_size; }
const std::vector<int64_t>& ProcessGroup::first_on_host() const { return state_->first_on_host; }
const std::string& ProcessGroup::host(int rank) const { return state_->hosts.at(static_cast<size_t>(rank)); }
const std::vector<std::string>& ProcessGroup::hosts() const { return state_->hosts; }
std::string ProcessGroup::describe(int rank) const { return describe_rank(*state_, rank); }

void ProcessGroup::set_limits(const WaitLimits& seconds) { state_->limits = seconds; }
double ProcessGroup::limit(RunPhase phase) const { return state_->limits[static_cast<size_t>(phase)]; }
double ProcessGroup::limit() const { return seconds_of(*state_, {}); }

void ProcessGroup::barrier(const Timeout& wait) {
  roll_call(*state_, fmt::format("barrier for {}", wait.what), seconds_of(*state_, wait));
}

void ProcessGroup::broadcast(std::span<std::byte> bytes, const Timeout& wait) {
  if (size() == 1) return;
  for (size_t done = 0; done < bytes.size() || done == 0;) {
    const size_t count = std::min<size_t>(bytes.size() - done, kBytesPerCall);
    exchange(*state_, "broadcast", wait, bytes.subspan(done, count), [&](std::byte* buffer, MPI_Request* request) {
      return MPI_Ibcast(buffer, static_cast<int>(count), MPI_BYTE, 0, state_->comm.get(), request);
    });
    done += std::max<size_t>(count, 1);
  }
}

std::string ProcessGroup::broadcast(std::string text, const Timeout& wait) {
  const std::vector<char> bytes = broadcast(std::vector<char>(text.begin(), text.end()), wait);
  return std::string(bytes.begin(), bytes.end());
}

void ProcessGroup::all_reduce_sum(std::span<int64_t> values, const Timeout& wait) {
  all_reduce(*state_, {"sum", MPI_INT64_T, MPI_SUM}, values, wait);
}
void ProcessGroup::all_reduce_sum(std::span<double> values, const Timeout& wait) {
  all_reduce(*state_, {"sum", MPI_DOUBLE, MPI_SUM}, values, wait);
}
void ProcessGroup::all_reduce_max(std::span<int64_t> values, const Timeout& wait) {
  all_reduce(*state_, {"maximum", MPI_INT64_T, MPI_MAX}, values, wait);
}
void ProcessGroup::all_reduce_max(std::span<double> values, const Timeout& wait) {
  all_reduce(*state_, {"maximum", MPI_DOUBLE, MPI_MAX}, values, wait);
}

// Gathering is a reduction of arrays in which each rank has set its own part. Open MPI reduces along a tree, but
// gathers with messages between any two ranks: over TCP, that many connections.
std::vector<int64_t> ProcessGroup::all_gather(std::span<const int64_t> values, const Timeout& wait) {
  const size_t count = values.size();
  std::vector<int64_t> all(count * static_cast<size_t>(size()));
  std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(count) * rank());
  all_reduce(*state_, {"gathering", MPI_INT64_T, MPI_SUM}, std::span(all), wait);
  return all;
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& text, const Timeout& wait) {
  TextRange range = text_range(text);  // usually, all texts are the same
  all_reduce(*state_, {"comparing text", MPI_INT64_T, MPI_MAX}, std::span<int64_t>(range), wait);
  if (same_text(range)) return std::vector<std::string>(static_cast<size_t>(size()), text);
  const int64_t length = static_cast<int64_t>(text.size());
  const std::vector<int64_t> lengths = all_gather(std::span(&length, 1), wait);
  const int64_t total = std::reduce(lengths.begin(), lengths.end());
  require(total <= kBytesPerCall, "gathering for {}: {} bytes of text are too many", wait.what, total);
  std::string all(static_cast<size_t>(total), '\0');
  std::ranges::copy(text, all.begin() + std::reduce(lengths.begin(), lengths.begin() + rank()));
  all_reduce(*state_, {"gathering text", MPI_BYTE, MPI_BOR}, std::span(all), wait);
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const int64_t each : lengths) {
    texts.push_back(all.substr(begin, static_cast<size_t>(each)));
    begin += static_cast<size_t>(each);
  }
  return texts;
}

}  // namespace lockstep
