#include "comm/group/roll_call.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/parameter_audit.h"

namespace lockstep {
namespace {

// Returns the time of a few heartbeats, which take turns in large jobs.
std::chrono::milliseconds heartbeat_delay(int ranks) {
  constexpr int kMostAtOnce = 128;
  return std::chrono::milliseconds(ranks <= kMostAtOnce ? 600 : 5000);
}

using OperationName = std::array<char, 128>;

// The memory that MPI may still access after a roll call has failed; it is then leaked on purpose.
struct Messages {
  TextRange range{};
  std::vector<OperationName> names;  // by rank
};

// Collective. Throws an Error that names the first rank in another operation than rank 0.
[[noreturn]] void fail_in_different_operations(const ProcessGroupState& group, std::unique_ptr<Messages> messages,
                                               std::string_view operation, double seconds) {
  std::vector<OperationName>& names = messages->names;
  names.resize(static_cast<size_t>(group.size));
  OperationName& mine = names[group.rank];
  std::copy_n(operation.data(), std::min(operation.size(), mine.size() - 1), mine.data());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, names.data(), sizeof(OperationName), MPI_BYTE,
                           group.comm.get(), &request),
            "roll call");
  Deadline deadline(seconds);
  if (!wait_all({&request, 1}, deadline, "roll call")) {
    (void)messages.release();
    fail(ExitCode::internal, "{}: other ranks are in another operation", operation);
  }
  const auto other = std::ranges::find_if(names, [&](const OperationName& name) { return name != names.front(); });
  require(other != names.end(), "two names of operations have one digest");
  fail(ExitCode::internal, "ranks disagree about what comes next: rank 0 is in '{}', but {} in '{}'",
       names.front().data(), describe_rank(group, static_cast<int>(other - names.begin())), other->data());
}

}  // namespace

std::string describe_rank(const ProcessGroupState& group, int rank) {
  if (group.hosts.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {}@{}", rank, group.hosts[rank]);
}

TextRange text_range(std::string_view text) {
  const auto digest = static_cast<int64_t>(hash_bytes(std::as_bytes(std::span(text))) >> 1);  // has a negative
  return {digest, -digest};
}

int64_t roll_call(ProcessGroupState& group, std::string_view operation, double seconds) {
  if (group.size == 1) return 0;
  require(!group.broken, "{}: an earlier exchange between the ranks failed", operation);
  group.broken = true;  // cleared on success below, so that any exception leaves the group broken
  const int64_t number = group.board ? group.board->begin(CollectiveKind::exchange, operation) : 0;
  const ScopedWait waiting(group.board, {CollectiveKind::exchange, number, operation});
  auto messages = std::make_unique<Messages>(Messages{.range = text_range(operation)});
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, messages->range.data(), static_cast<int>(messages->range.size()), MPI_INT64_T,
                           MPI_MAX, group.comm.get(), &request),
            "roll call");
  Deadline deadline(seconds);
  if (!wait_all({&request, 1}, deadline, "roll call")) {
    (void)messages.release();
    fail(ExitCode::stalled, "{}: some ranks did not arrive within {:g} s{}", operation, seconds, who_is_behind(group));
  }
  if (!same_text(messages->range)) fail_in_different_operations(group, std::move(messages), operation, seconds);
  group.broken = false;
  return number;
}

std::string who_is_behind(const ProcessGroupState& group) {
  if (!group.board) return {};
  std::this_thread::sleep_for(heartbeat_delay(group.size));
  return "; " + group.board->describe_missing();
}

}  // namespace lockstep
