// Measures the all-reduce of gradients within a host against MPI's and prints a Markdown table in milliseconds.
//
//   mpirun -np 2 --bind-to none lockstep_reduction_benchmark [ROUNDS]
//
// Every round measures three methods in turn: blocking MPI_Allreduce, MpiCommunicator over MPI, and MpiCommunicator in
// shared memory, the latter two in buckets as in a training step. The time of an all-reduce runs from a barrier until
// the last rank has its result. Every rank writes its values right before, so that they are in its caches.
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
constexpr std::array<size_t, 6> kBuckets = {1, 2, 4, 8, 16, 26};  // the last is about the size of Inception-v3
constexpr double kMilliseconds = 1e3;

struct Cost {
  double seconds = 0;  // until the last rank has the sum
  double cpu = 0;      // CPU seconds of this rank
};

struct Method {
  const char* name;
  MpiCommunicator* communicator;  // null for MPI_Allreduce
  float* memory;
  std::vector<Cost> costs = {};
};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void all_reduce(const Method& method, Stream& stream, size_t count) {
  if (!method.communicator) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, method.memory, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
    return;
  }
  for (size_t begin = 0; begin < count; begin += kBucket) {
    method.communicator->all_reduce(stream, {method.memory + begin, std::min(kBucket, count - begin)}, "a bucket");
  }
  method.communicator->wait(stream);
}

Cost measure(const Method& method, Stream& stream, size_t count, ProcessGroup& group) {
  std::fill_n(method.memory, count, static_cast<float>(group.rank() + 1));
  group.barrier({"an all-reduce"});
  check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");  // aligns the ranks better than the group's barrier does
  const double begin = monotonic_seconds(), cpu_begin = cpu_seconds();
  all_reduce(method, stream, count);
  Cost cost{monotonic_seconds() - begin, cpu_seconds() - cpu_begin};
  const auto ranks = static_cast<float>(group.size());
  require(method.memory[count - 1] == ranks * (ranks + 1) / 2, "{}: a sum is wrong", method.name);
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
  std::array<Method, 3> methods = {Method{"MPI_Allreduce", nullptr, own.as<float>()},
                                   Method{"over MPI", &over_mpi, own.as<float>()},
                                   Method{"in shared memory", &in_place, shared.as<float>()}};
  if (group.is_root()) {
    fmt::print("{}, {} ranks, {} rounds; milliseconds until the last rank has the sum (CPU milliseconds of rank 0)\n\n",
               MpiSession::library_version(), group.size(), rounds);
    fmt::print("| MiB | {} | {} | {} |\n|---|---|---|---|\n", methods[0].name, methods[1].name, methods[2].name);
  }
  for (const size_t buckets : kBuckets) {
    for (Method& method : methods) method.costs.clear();
    for (int round = 0; round < rounds; ++round) {
      for (Method& method : methods) method.costs.push_back(measure(method, *stream, buckets * kBucket, group));
    }
    if (!group.is_root()) continue;
    fmt::print("| {} ", buckets * kBucket * sizeof(float) >> 20);
    for (const Method& method : methods) {
      fmt::print("| {:.2f} ({:.2f}) ", kMilliseconds * median(method.costs, &Cost::seconds),
                 kMilliseconds * median(method.costs, &Cost::cpu));
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
