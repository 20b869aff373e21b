#include "lockstep/base/bounded_queue.h"

#include <stdexcept>
#include <thread>

#include "test/catch.h"

using lockstep::BoundedQueue;

TEST_CASE("a closed queue is drained before its end is seen") {
  BoundedQueue<int> queue(4);
  REQUIRE(queue.push(1));
  REQUIRE(queue.push(2));
  queue.close();
  CHECK_FALSE(queue.push(3));
  CHECK(queue.pop() == 1);
  CHECK(queue.pop() == 2);
  CHECK(queue.pop() == std::nullopt);
}

TEST_CASE("a producer blocked on a full queue wakes when there is space") {
  BoundedQueue<int> queue(1);
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) queue.push(i);
    queue.close();
  });
  int expected = 0;
  while (auto value = queue.pop()) CHECK(*value == expected++);
  producer.join();
  CHECK(expected == 100);
}

TEST_CASE("failing a queue rethrows on both sides") {
  BoundedQueue<int> queue(1);
  std::thread consumer([&] { CHECK_THROWS_AS(queue.pop(), std::runtime_error); });
  queue.fail(std::make_exception_ptr(std::runtime_error("lost")));
  consumer.join();
  CHECK_THROWS_AS(queue.push(1), std::runtime_error);
}
