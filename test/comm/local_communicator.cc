#include "test/comm/local_communicator.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <variant>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/half.h"

namespace lockstep {
namespace {

struct BroadcastBytes {
  std::span<std::byte> bytes;
  int root = 0;
};

// One rank's part of an operation.
using Contribution = std::variant<std::span<float>, std::span<double>, HalfSpan, BroadcastBytes>;

struct Operation {
  std::string label;
  std::vector<Contribution> contributions;  // in order of arrival
  std::vector<int> ranks;                   // the rank of each contribution
};

template <class T>
void add_up(std::vector<std::span<T>>& by_rank) {
  for (const auto& values : by_rank) {
    require(values.size() == by_rank[0].size(), "ranks bring {} and {} elements", by_rank[0].size(), values.size());
  }
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    T total = by_rank[0][i];
    for (size_t r = 1; r < by_rank.size(); ++r) total += by_rank[r][i];
    for (auto& values : by_rank) values[i] = total;
  }
}

void add_up(std::vector<HalfSpan>& by_rank) {
  std::vector<float> total(by_rank[0].values.size());
  for (const HalfSpan& half : by_rank) {
    require(half.type == by_rank[0].type, "ranks bring {} and {}", dtype_name(by_rank[0].type), dtype_name(half.type));
    add_half(half.type, half.values, total);
  }
  for (const HalfSpan& half : by_rank) to_half(half.type, total, half.values);
}

void broadcast(std::vector<BroadcastBytes>& by_rank) {
  const BroadcastBytes from = by_rank[by_rank[0].root];
  for (const BroadcastBytes& to : by_rank) {
    require(to.bytes.size() == from.bytes.size() && to.root == from.root, "ranks disagree about a broadcast");
    if (to.bytes.data() != from.bytes.data() && !to.bytes.empty()) {
      std::memcpy(to.bytes.data(), from.bytes.data(), from.bytes.size());
    }
  }
}

template <class T>
std::vector<T> sorted_by_rank(const Operation& operation) {
  std::vector<T> by_rank(operation.ranks.size());
  for (size_t i = 0; i < operation.ranks.size(); ++i) {
    const T* mine = std::get_if<T>(&operation.contributions[i]);
    require(mine != nullptr, "'{}': ranks are in different operations", operation.label);
    by_rank[operation.ranks[i]] = *mine;
  }
  return by_rank;
}

void perform(const Operation& operation) {
  std::visit(
      [&](const auto& first) {
        using T = std::decay_t<decltype(first)>;
        auto by_rank = sorted_by_rank<T>(operation);
        if constexpr (std::is_same_v<T, BroadcastBytes>) {
          broadcast(by_rank);
        } else {
          add_up(by_rank);
        }
      },
      operation.contributions.front());
}

}  // namespace

struct LocalHub::State {
  explicit State(int ranks) : size(ranks), posted(static_cast<size_t>(ranks), 0) {}

  // Adds this rank's contribution to its next operation. The last rank to arrive performs the operation.
  void post(int rank, Contribution contribution, std::string_view label) {
    std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    const size_t index = posted[rank]++ - completed;
    if (index == pending.size()) pending.push_back({.label = std::string(label)});
    pending[index].contributions.push_back(contribution);
    pending[index].ranks.push_back(rank);
    if (pending[index].ranks.size() < static_cast<size_t>(size)) return;
    // All ranks post in the same order, so the operation that becomes complete is the oldest one.
    try {
      perform(pending.front());
    } catch (...) {
      error = std::current_exception();
    }
    pending.pop_front();
    ++completed;
    changed.notify_all();
    if (error) std::rethrow_exception(error);
  }

  void wait(int rank, double seconds) {
    std::unique_lock lock(mutex);
    const size_t until = posted[rank];
    const bool done =
        changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return error || completed >= until; });
    if (error) std::rethrow_exception(error);
    if (!done) {
      fail(ExitCode::stalled, "'{}' did not finish within {:g} s: {} of {} ranks are there", pending.front().label,
           seconds, pending.front().ranks.size(), size);
    }
  }

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<size_t> posted;     // number of operations started, by rank
  size_t completed = 0;           // number of operations done
  std::deque<Operation> pending;  // started by some ranks but not by all, oldest first
  std::exception_ptr error;
};

LocalHub::LocalHub(int size) : state_(std::make_unique<State>(size)) {}
LocalHub::~LocalHub() = default;

LocalCommunicator::LocalCommunicator(LocalHub& hub, Options options) : hub_(*hub.state_), options_(options) {
  require(options.rank >= 0 && options.rank < hub_.size, "rank {} of {} ranks", options.rank, hub_.size);
}

int LocalCommunicator::size() const { return hub_.size; }

void LocalCommunicator::all_reduce(Stream& stream, std::span<float> values, std::string_view label) {
  stream.wait();
  hub_.post(options_.rank, values, label);
  ++statistics_.operations;
  statistics_.bytes += static_cast<int64_t>(values.size_bytes());
}

void LocalCommunicator::all_reduce(Stream& stream, std::span<double> values, std::string_view label) {
  stream.wait();
  hub_.post(options_.rank, values, label);
  ++statistics_.operations;
  statistics_.bytes += static_cast<int64_t>(values.size_bytes());
}

void LocalCommunicator::all_reduce(Stream& stream, HalfSpan values, std::string_view label) {
  stream.wait();
  hub_.post(options_.rank, values, label);
  ++statistics_.operations;
  statistics_.bytes += static_cast<int64_t>(values.values.size_bytes());
}

void LocalCommunicator::broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) {
  require(root >= 0 && root < hub_.size, "'{}': root {} of {} ranks", label, root, hub_.size);
  stream.wait();
  hub_.post(options_.rank, BroadcastBytes{bytes, root}, label);
  ++statistics_.operations;
  statistics_.bytes += static_cast<int64_t>(bytes.size());
}

double LocalCommunicator::wait(Stream&) {
  const double begin = monotonic_seconds();
  hub_.wait(options_.rank, options_.abort_seconds);
  const double waited = monotonic_seconds() - begin;
  statistics_.exposed_seconds += waited;
  return waited;
}

}  // namespace lockstep
