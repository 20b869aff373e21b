#include "lockstep/comm/group/agreement.h"

#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::world;

namespace {

// The AgreedError that `work` throws; fails when there is none.
template <class Work>
AgreedError agreed_error(Work work) {
  try {
    work();
  } catch (const AgreedError& error) {
    return error;
  }
  FAIL("nothing was thrown");
  throw;
}

}  // namespace

TEST_CASE("the result of rank 0 reaches every rank, and only rank 0 works") {
  int calls = 0;
  const std::string result = on_root(world(), {"a file"}, [&] {
    ++calls;
    return std::string("line\n\0rest", 10);
  });
  CHECK(result == std::string("line\n\0rest", 10));
  CHECK(calls == (world().is_root() ? 1 : 0));
}

TEST_CASE("an error of rank 0 is thrown on every rank with its code and message") {
  const AgreedError error = agreed_error(
      [] { on_root(world(), {"a file"}, []() -> std::string { fail(ExitCode::config, "run.toml:3: unknown key"); }); });
  CHECK(error.code() == ExitCode::config);
  CHECK(error.what() == std::string("run.toml:3: unknown key"));
}

TEST_CASE("a foreign exception of rank 0 becomes an internal error of every rank") {
  const AgreedError error =
      agreed_error([] { on_root(world(), {"a file"}, []() -> std::string { throw std::runtime_error("odd"); }); });
  CHECK(error.code() == ExitCode::internal);
  CHECK(error.what() == std::string("odd"));
}

TEST_CASE("a bug on rank 0 is reported with its place") {
  const AgreedError error = agreed_error([] {
    on_root(world(), {"a file"}, []() -> std::string {
      require(false, "odd");
      return {};
    });
  });
  CHECK(error.code() == ExitCode::internal);
  CHECK_THAT(error.what(), ContainsSubstring("odd [") && ContainsSubstring("agreement_test.cc:"));
}

TEST_CASE("ranks that all succeed agree") {
  int calls = 0;
  on_every_rank(world(), {"the data"}, [&] { ++calls; });
  CHECK(calls == 1);
}

TEST_CASE("the lowest failing rank speaks for all") {
  const int failing = world().size() / 2;  // this rank and all above
  const AgreedError error = agreed_error([&] {
    on_every_rank(world(), {"the data"}, [&] {
      if (world().rank() >= failing) fail(ExitCode::data, "file {} is missing", world().rank());
    });
  });
  CHECK(error.code() == ExitCode::data);
  const std::string text = "file " + std::to_string(failing) + " is missing";
  if (world().size() == 1) {
    CHECK(error.what() == text);
  } else {
    CHECK_THAT(error.what(), ContainsSubstring(world().describe(failing) + ": " + text));
  }
  const int others = world().size() - failing - 1;
  if (others > 0) CHECK_THAT(error.what(), ContainsSubstring("and " + std::to_string(others) + " more"));
}

TEST_CASE("what several ranks say is said once, with their names unless all of them say it") {
  const auto merged = [](const auto& text_of) {
    std::vector<std::string> texts;
    for (int r = 0; r < world().size(); ++r) texts.push_back(text_of(r));
    return merge_texts(world(), texts);
  };
  CHECK(merged([](int) { return std::string(); }).empty());
  CHECK(merged([](int) { return std::string("bad"); }) == std::vector<std::string>{"bad"});
  if (world().size() == 1) return;
  const std::string last = world().describe(world().size() - 1);
  CHECK(merged([](int r) { return std::string(r == world().size() - 1 ? "bad" : ""); }) ==
        std::vector<std::string>{last + ": bad"});
  const auto both = merged([](int r) { return std::string(r == 1 ? "worse" : "bad"); });
  REQUIRE(both.size() == 2);
  std::string others = world().describe(0);
  for (int r = 2; r < world().size(); ++r) others += ", " + world().describe(r);
  CHECK(both[0] == others + ": bad");
  CHECK(both[1] == world().describe(1) + ": worse");
}
