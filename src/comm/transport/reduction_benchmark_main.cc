// The allreduce of gradients within a host, beside MPI's: a table of seconds, in Markdown.
//
//   mpirun -np 2 --bind-to none lockstep_reduction_benchmark [ROUNDS]
//
// Three ways take turns in every round: MPI_Allreduce as it is, on a thread that does nothing else; the communicator
// over MPI, and in shared memory, in buckets as a step has them. Each sum starts when all ranks are there and counts
// until the last has its result; before it every rank has just written its numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "comm/group/mpi_support.h"
#include "lockstep/backend/backend.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/comm/group/mpi_session.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/transport/bucket_plan.h"
#include "lockstep/comm/transport/mpi_communicator.h"

namespace lockstep {
namespace {

constexpr size_t kBucket = kHostBucketBytes / sizeof(float);
constexpr std::array<size_t, 6> kBuckets = {1, 2, 4, 8, 16, 26};  // the last: about Inception-v3's gradients
constexpr double kMilliseconds = 1e3;

struct Cost {
  double seconds = 0;  // until the last rank had the sum
  double cpu = 0;      // of this rank
};

struct Way {
  const char* name;
  MpiCommunicator* communicator;  // none: MPI_Allreduce
  float* memory;
  std::vector<Cost> costs = {};
};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void sum(const Way& way, Stream& stream, size_t count) {
  if (!way.communicator) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, way.memory, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
    return;
  }
  for (size_t begin = 0; begin < count; begin += kBucket) {
    way.communicator->all_reduce(stream, {way.memory + begin, std::min(kBucket, count - begin)}, "a bucket");
  }
  way.communicator->wait(stream);
}

Cost measure(const Way& way, Stream& stream, size_t count, ProcessGroup& group) {
  std::fill_n(way.memory, count, static_cast<float>(group.rank() + 1));
  group.barrier({"a sum"});
  check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");  // the other takes its time to let go
  const double begin = monotonic_seconds(), cpu_begin = cpu_seconds();
  sum(way, stream, count);
  Cost cost{monotonic_seconds() - begin, cpu_seconds() - cpu_begin};
  const auto ranks = static_cast<float>(group.size());
  require(way.memory[count - 1] == ranks * (ranks + 1) / 2, "{}: a sum is wrong", way.name);
  group.all_reduce_max(std::span(&cost.seconds, 1), {"the slowest rank"});
  return cost;
}

double median(const std::vector<Cost>& costs, double Cost::*member) {
  std::vector<double> values;
  for (const Cost& cost : costs) values.push_back(cost.*member);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void run(ProcessGroup& group, int rounds) {
  const auto backend = make_backend("reference", {});
  const auto stream = backend->make_stream();
  MpiCommunicator over_mpi(group), in_place(group, {.shared_memory = true});
  const size_t bytes = kBuckets.back() * kBucket * sizeof(float);
  const Buffer own = backend->allocate(bytes), shared = in_place.shared_buffer(bytes);
  if (!shared.data()) fail(ExitCode::config, "the ranks share no memory: start two or more on one host");
  std::array<Way, 3> ways = {Way{"MPI_Allreduce", nullptr, own.as<float>()},
                             Way{"over MPI", &over_mpi, own.as<float>()},
                             Way{"in shared memory", &in_place, shared.as<float>()}};
  if (group.is_root()) {
    fmt::print("{}, {} ranks, {} rounds; milliseconds until the last rank has the sum (CPU milliseconds of rank 0)\n\n",
               MpiSession::library_version(), group.size(), rounds);
    fmt::print("| MiB | {} | {} | {} |\n|---|---|---|---|\n", ways[0].name, ways[1].name, ways[2].name);
  }
  for (const size_t buckets : kBuckets) {
    for (Way& way : ways) way.costs.clear();
    for (int round = 0; round < rounds; ++round) {
      for (Way& way : ways) way.costs.push_back(measure(way, *stream, buckets * kBucket, group));
    }
    if (!group.is_root()) continue;
    fmt::print("| {} ", buckets * kBucket * sizeof(float) >> 20);
    for (const Way& way : ways) {
      fmt::print("| {:.2f} ({:.2f}) ", kMilliseconds * median(way.costs, &Cost::seconds),
                 kMilliseconds * median(way.costs, &Cost::cpu));
    }
    fmt::print("|\n");
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  MpiSession session(argc, argv);
  try {
    ProcessGroup group(session);
    run(group, argc > 1 ? std::max(1, parse_number<int>(argv[1]).value_or(1)) : 21);
    session.finish();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", message_of(error));
    abort_job(static_cast<int>(error.code()));
  }
}
