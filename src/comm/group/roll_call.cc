#include "comm/group/roll_call.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int kArrivalTag = 1;
constexpr int kVerdictTag = 2;
constexpr size_t kRanksNamed = 8;
constexpr std::chrono::milliseconds kHeartbeatDelay{600};  // a few heartbeats

using Arrival = std::array<char, 128>;  // the name of the operation

struct Verdict {
  int code = 0;  // an ExitCode; 0: all ranks have arrived
  std::array<char, 1024> text{};
};

template <size_t N>
void copy_text(std::array<char, N>& to, std::string_view text) {
  to.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), N - 1), to.data());
}

// The memory that MPI may still access after a roll call has failed; it is then leaked on purpose.
struct Messages {
  explicit Messages(int others)
      : arrivals(others), requests(others, MPI_REQUEST_NULL), sends(others, MPI_REQUEST_NULL) {}
  std::vector<Arrival> arrivals;
  Verdict verdict;
  std::vector<MPI_Request> requests;
  std::vector<MPI_Request> sends;
};

std::string list_ranks(const ProcessGroupState& group, const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kRanksNamed; ++i) {
    if (i > 0) text += ", ";
    text += describe_rank(group, ranks[i]);
  }
  if (ranks.size() > kRanksNamed) text += fmt::format(" and {} more", ranks.size() - kRanksNamed);
  return text;
}

// Rank 0 waits for all arrivals and sets `arrived` (indexed by rank - 1) for the ranks that came.
void collect(Messages& messages, Deadline deadline, std::vector<bool>& arrived) {
  const int others = static_cast<int>(messages.arrivals.size());
  std::vector<int> indices(messages.arrivals.size());
  Backoff backoff;
  for (int count = 0; count < others && !deadline.passed();) {
    int completed = 0;
    check_mpi(MPI_Testsome(others, messages.requests.data(), &completed, indices.data(), MPI_STATUSES_IGNORE),
              "roll call");
    for (int i = 0; i < completed; ++i) arrived[indices[i]] = true;
    count += completed;
    if (completed == 0) backoff.pause();
  }
}

Verdict judge(const ProcessGroupState& group, const Messages& messages, const std::vector<bool>& arrived,
              const Arrival& mine, double seconds) {
  std::vector<int> missing, elsewhere;
  for (int r = 1; r < group.size; ++r) {
    const size_t i = static_cast<size_t>(r - 1);
    if (!arrived[i]) {
      missing.push_back(r);
    } else if (messages.arrivals[i] != mine) {
      elsewhere.push_back(r);
    }
  }
  const auto named = [&](const std::vector<int>& ranks) { return list_ranks(group, ranks); };
  const char* other = elsewhere.empty() ? "" : messages.arrivals[elsewhere.front() - 1].data();
  Verdict verdict;
  if (!missing.empty()) {  // ranks in another operation may only be ahead, so the missing ones are reported first
    const std::string ahead = elsewhere.empty() ? "" : fmt::format(" ({} waits in '{}')", named(elsewhere), other);
    verdict.code = static_cast<int>(ExitCode::stalled);
    copy_text(verdict.text, fmt::format("{}: {} did not arrive within {:g} s{}; look at the log and the host of each",
                                        mine.data(), named(missing), seconds, ahead));
  } else if (!elsewhere.empty()) {
    verdict.code = static_cast<int>(ExitCode::internal);
    copy_text(verdict.text, fmt::format("ranks disagree about what comes next: rank 0 is in '{}', but {} in '{}'",
                                        mine.data(), named(elsewhere), other));
  }
  return verdict;
}

// Returns the ranks whose messages are not complete; `requests` is indexed by rank - 1.
std::vector<int> unfinished(std::span<MPI_Request> requests) {
  std::vector<int> ranks;
  for (size_t i = 0; i < requests.size(); ++i) {
    int done = 0;
    check_mpi(MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE), "roll call");
    if (!done) ranks.push_back(static_cast<int>(i) + 1);
  }
  return ranks;
}

void roll_call_on_root(const ProcessGroupState& group, Messages& messages, const Arrival& mine, double seconds) {
  const MPI_Comm comm = group.comm.get();
  for (int r = 1; r < group.size; ++r) {
    const size_t i = static_cast<size_t>(r - 1);
    check_mpi(
        MPI_Irecv(messages.arrivals[i].data(), sizeof(Arrival), MPI_BYTE, r, kArrivalTag, comm, &messages.requests[i]),
        "roll call");
  }
  std::vector<bool> arrived(messages.arrivals.size(), false);
  collect(messages, Deadline(seconds), arrived);
  messages.verdict = judge(group, messages, arrived, mine, seconds);
  for (int r = 1; r < group.size; ++r) {
    const size_t i = static_cast<size_t>(r - 1);
    if (!arrived[i]) continue;
    check_mpi(MPI_Isend(&messages.verdict, sizeof(Verdict), MPI_BYTE, r, kVerdictTag, comm, &messages.sends[i]),
              "roll call");
  }
  Deadline sending(seconds);
  const bool sent = wait_all(messages.sends, sending, "roll call");
  if (!sent && messages.verdict.code == 0) {
    messages.verdict.code = static_cast<int>(ExitCode::stalled);
    copy_text(messages.verdict.text,
              fmt::format("{}: {} stopped while it began", mine.data(), list_ranks(group, unfinished(messages.sends))));
  }
}

void roll_call_on_other(const ProcessGroupState& group, Messages& messages, const Arrival& mine, double seconds) {
  constexpr double kLongestGrace = 2;
  messages.arrivals[0] = mine;
  const MPI_Comm comm = group.comm.get();
  check_mpi(MPI_Irecv(&messages.verdict, sizeof(Verdict), MPI_BYTE, 0, kVerdictTag, comm, &messages.requests[0]),
            "roll call");
  check_mpi(MPI_Isend(messages.arrivals[0].data(), sizeof(Arrival), MPI_BYTE, 0, kArrivalTag, comm, &messages.sends[0]),
            "roll call");
  // Wait slightly longer than rank 0 does, because its verdict names the missing ranks.
  Deadline deadline(seconds + std::min(seconds, kLongestGrace));
  if (wait_all({messages.requests.data(), 1}, deadline, "roll call") &&
      wait_all({messages.sends.data(), 1}, deadline, "roll call")) {
    return;
  }
  messages.verdict.code = static_cast<int>(ExitCode::stalled);
  copy_text(messages.verdict.text, fmt::format("{}: {} did not answer within {:g} s; look at its log and its host",
                                               mine.data(), describe_rank(group, 0), seconds));
}

}  // namespace

std::string describe_rank(const ProcessGroupState& group, int rank) {
  if (group.hosts.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {}@{}", rank, group.hosts[rank]);
}

int64_t roll_call(ProcessGroupState& group, std::string_view operation, double seconds) {
  if (group.size == 1) return 0;
  require(!group.broken, "{}: an earlier exchange between the ranks failed", operation);
  group.broken = true;  // cleared on success below, so that any exception leaves the group broken
  Arrival mine;
  copy_text(mine, operation);
  const int64_t number = group.board ? group.board->begin(CollectiveKind::exchange, operation) : 0;
  const ScopedWait waiting(group.board, {CollectiveKind::exchange, number, operation});
  auto messages = std::make_unique<Messages>(group.rank == 0 ? group.size - 1 : 1);
  if (group.rank == 0) {
    roll_call_on_root(group, *messages, mine, seconds);
  } else {
    roll_call_on_other(group, *messages, mine, seconds);
  }
  const Verdict verdict = messages->verdict;
  if (verdict.code != 0) {
    (void)messages.release();  // leaked, because receives and sends may still be pending
    const auto code = static_cast<ExitCode>(verdict.code);
    throw Error(code, verdict.text.data() + (code == ExitCode::stalled ? who_is_behind(group) : std::string()));
  }
  group.broken = false;
  return number;
}

std::string who_is_behind(const ProcessGroupState& group) {
  if (!group.board) return {};
  std::this_thread::sleep_for(kHeartbeatDelay);
  return "; " + group.board->describe_missing();
}

}  // namespace lockstep
