// The rules of the fake NCCL: when a call is complete, what ranks must agree on, and how a connection ends.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "test/catch.h"
#include "test/fake_gpu/bench.h"
#include "test/fake_gpu/order.h"

using namespace lockstep::fake_gpu;

namespace {

// Two ranks of one NCCL communicator, both in this process.
struct Connection {
  std::array<ncclComm_t, 2> ranks{};

  Connection() {
    ncclUniqueId id{};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    for (int rank : {0, 1}) REQUIRE(ncclCommInitRankConfig(&ranks[rank], 2, id, rank, &config) == ncclInProgress);
    for (int rank : {0, 1}) REQUIRE(last_state(rank) == ncclSuccess);
  }

  ncclResult_t state(int rank) const {
    ncclResult_t state = ncclSystemError;
    REQUIRE(ncclCommGetAsyncError(ranks[rank], &state) == ncclSuccess);
    return state;
  }
  // Its state when it is no longer in progress.
  ncclResult_t last_state(int rank) const {
    while (state(rank) == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return state(rank);
  }
  ncclResult_t all_reduce(int rank, float* values, cudaStream_t stream) const {
    REQUIRE(ncclAllReduce(values, values, kCount, ncclFloat32, ncclSum, ranks[rank], stream) == ncclInProgress);
    return last_state(rank);
  }
};

// A graph of one collective of rank 0.
cudaGraphExec_t captured_all_reduce(const Connection& connection, const Bench& b) {
  expect(cudaStreamBeginCapture(b.compute, cudaStreamCaptureModeRelaxed));
  CHECK(connection.all_reduce(0, b.sums, b.compute) == ncclSuccess);
  cudaGraph_t graph = nullptr;
  expect(cudaStreamEndCapture(b.compute, &graph));
  cudaGraphExec_t executable = nullptr;
  expect(cudaGraphInstantiate(&executable, graph, 0));
  expect(cudaGraphDestroy(graph));
  return executable;
}

}  // namespace

TEST_CASE("a collective before NCCL's last call is complete is refused") {
  const Bench b;
  ncclUniqueId id{};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t half_connected = nullptr;  // the other rank never comes
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(ncclCommInitRankConfig(&half_connected, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclAllReduce(b.sums, b.sums, kCount, ncclFloat32, ncclSum, half_connected, b.compute) == ncclInvalidArgument);
  CHECK(ncclCommAbort(half_connected) == ncclSuccess);
}

TEST_CASE("a connection of NCCL is destroyed only after all its ranks have finalized it") {
  const Connection connection;
  CHECK(ncclCommDestroy(connection.ranks[0]) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(connection.ranks[0]) == ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(connection.state(0) == ncclInProgress);
  CHECK(ncclCommDestroy(connection.ranks[0]) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(connection.ranks[1]) == ncclInProgress);
  for (int rank : {0, 1}) CHECK(connection.last_state(rank) == ncclSuccess);
  for (const ncclComm_t rank : connection.ranks) CHECK(ncclCommDestroy(rank) == ncclSuccess);
}

TEST_CASE("a collective that is captured on one rank and not on the other is refused") {
  const InOrder in_order("eager");
  const Bench b;
  const Connection connection;
  const cudaGraphExec_t executable = captured_all_reduce(connection, b);
  expect(cudaGraphLaunch(executable, b.compute));
  (void)connection.all_reduce(1, b.device, b.transfer);
  expect(cudaDeviceSynchronize());
  for (int rank : {0, 1}) {
    CHECK(connection.last_state(rank) == ncclInternalError);
    CHECK_THAT(ncclGetLastError(connection.ranks[rank]), ContainsSubstring("in a captured collective of 64 elements"));
  }
  expect(cudaGraphExecDestroy(executable));
  for (const ncclComm_t rank : connection.ranks) CHECK(ncclCommAbort(rank) == ncclSuccess);
}

TEST_CASE("ranks in different collectives are an error that says how they differ") {
  const InOrder in_order("eager");
  const Bench b;
  const Connection connection;
  REQUIRE(ncclAllReduce(b.device, b.device, kCount / 2, ncclFloat32, ncclSum, connection.ranks[1], b.transfer) ==
          ncclInProgress);
  (void)connection.all_reduce(0, b.sums, b.compute);
  expect(cudaDeviceSynchronize());
  for (int rank : {0, 1}) CHECK(connection.last_state(rank) == ncclInternalError);
  CHECK_THAT(ncclGetLastError(connection.ranks[0]),
             ContainsSubstring("rank 0 is in a collective of 64 elements and rank 1 in a collective of 32 elements"));
  for (const ncclComm_t rank : connection.ranks) CHECK(ncclCommAbort(rank) == ncclSuccess);
}

TEST_CASE("an abort of a connection of NCCL waits until no graph has a collective of it") {
  const InOrder in_order("eager");
  const Bench b;
  const Connection connection;
  const cudaGraphExec_t executable = captured_all_reduce(connection, b);
  std::atomic<bool> aborted{false};
  std::thread aborting([&] {
    (void)ncclCommAbort(connection.ranks[0]);
    aborted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(aborted);
  expect(cudaGraphExecDestroy(executable));
  aborting.join();
  CHECK(aborted);
  CHECK(ncclCommAbort(connection.ranks[1]) == ncclSuccess);
}

TEST_CASE("a rank that leaves another in a collective, and a process that ends in an abort, crash") {
  const InOrder in_order("eager");
  const Bench b;
  CHECK_THAT(crash_of([&] {
               const Connection connection;
               (void)connection.all_reduce(1, b.sums, b.compute);
               std::this_thread::sleep_for(std::chrono::seconds(3));  // far more than a thread takes to start
               (void)ncclCommAbort(connection.ranks[0]);
             }),
             ContainsSubstring("fake GPU: NCCL: rank 0 left while rank 1 is in collective 1"));
  CHECK_THAT(crash_of([&] {
               const Connection connection;
               ::setenv("FAKE_NCCL_ABORT_HANGS", "0", 1);
               std::thread([&] { (void)ncclCommAbort(connection.ranks[0]); }).detach();
               std::this_thread::sleep_for(std::chrono::seconds(3));  // far more than a thread takes to start
               std::exit(0);
             }),
             ContainsSubstring("fake GPU: NCCL: the process ends while a thread is in ncclCommAbort"));
}
