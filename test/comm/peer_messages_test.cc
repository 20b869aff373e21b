#include "comm/transport/peer_messages.h"

#include <chrono>
#include <thread>
#include <vector>

#include "comm/group/mpi_support.h"
#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::world;

namespace {

constexpr int kElements = 100'000;

bool within_a_minute(const auto& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// A rank's exchange with all others.
struct Exchange {
  CommHandle comm = duplicate(MPI_COMM_WORLD, 60, "a test");
  PeerMessages messages{{comm.get(), 1, MPI_FLOAT}, "a test"};
  std::vector<float> own = std::vector<float>(kElements, static_cast<float>(world().rank()));
  std::vector<std::vector<float>> theirs =
      std::vector<std::vector<float>>(static_cast<size_t>(world().size()), std::vector<float>(kElements));

  void receive_from_others() {
    for (int r = 0; r < world().size(); ++r) {
      std::vector<float>& values = theirs[static_cast<size_t>(r)];
      if (r != world().rank()) messages.receive(r, reinterpret_cast<std::byte*>(values.data()), kElements);
    }
  }
  void send_to_others() {
    for (int r = 0; r < world().size(); ++r) {
      if (r != world().rank()) messages.send(r, reinterpret_cast<const std::byte*>(own.data()), kElements);
    }
  }
  void finish() {
    REQUIRE(within_a_minute([&] { return messages.complete(); }));
    for (int r = 0; r < world().size(); ++r) {
      if (r == world().rank()) continue;
      CHECK(theirs[static_cast<size_t>(r)] == std::vector<float>(kElements, static_cast<float>(r)));
    }
  }
};

}  // namespace

TEST_CASE("messages to and from all others arrive") {
  Exchange exchange;
  exchange.receive_from_others();
  exchange.send_to_others();
  exchange.finish();
  CHECK(exchange.messages.complete());
  CHECK(exchange.messages.only_missing_rank() == -1);
}

TEST_CASE("the one rank that has not sent is told, and none where several have not") {
  const int last = world().size() - 1;
  for (int late = 1; late < world().size(); ++late) {
    INFO("the last " << late << " are late");
    Exchange exchange;
    exchange.receive_from_others();
    const bool on_time = world().rank() <= last - late;
    if (on_time) {
      exchange.send_to_others();
      const int missing = late == 1 ? last : -1;
      REQUIRE(within_a_minute([&] { return exchange.messages.only_missing_rank() == missing; }));
      for (int look = 0; look < 100; ++look) CHECK(exchange.messages.only_missing_rank() == missing);
      CHECK_FALSE(exchange.messages.complete());
    }
    world().barrier({"the looks"});
    if (!on_time) exchange.send_to_others();
    exchange.finish();
  }
}

TEST_CASE("two exchanges at once keep their messages apart, whichever began first") {
  const CommHandle comm = duplicate(MPI_COMM_WORLD, 60, "a test");
  PeerMessages first({comm.get(), 1, MPI_FLOAT}, "first"), second({comm.get(), 2, MPI_FLOAT}, "second");
  const int rank = world().rank(), size = world().size();
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  if (to == rank) return;
  std::vector<float> one(kElements, 1), two(kElements, 2), ones(kElements), twos(kElements);
  const auto bytes = [](std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); };
  first.receive(from, bytes(ones), kElements);
  second.receive(from, bytes(twos), kElements);
  second.send(to, bytes(two), kElements);
  first.send(to, bytes(one), kElements);
  REQUIRE(within_a_minute([&] { return first.complete() && second.complete(); }));
  CHECK(ones == one);
  CHECK(twos == two);
}

TEST_CASE("nothing is sent for nothing") {
  Exchange exchange;
  std::byte none{};
  for (int r = 0; r < world().size(); ++r) {
    if (r == world().rank()) continue;
    exchange.messages.receive(r, &none, 0);
    exchange.messages.send(r, &none, 0);
  }
  CHECK(exchange.messages.complete());
}
