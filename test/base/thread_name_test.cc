#include "lockstep/base/thread_name.h"

#include <pthread.h>

#include <array>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a thread bears its name, and no other thread does") {
  const auto own_name = [] {
    std::array<char, 16> name{};
    CHECK(::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0);
    return std::string(name.data());
  };
  const std::string before = own_name();
  std::string named;
  std::thread([&] {
    name_thread("fifteen letters");
    named = own_name();
  }).join();
  CHECK(named == "fifteen letters");
  CHECK(own_name() == before);
  CHECK_THROWS_AS(name_thread("sixteen letters!"), Error);
}
