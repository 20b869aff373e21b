#include "comm/supervision/local_ranks.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// A directory that looks like /proc, with this program as process 100.
struct FakeProc {
  FakeProc() {
    add(100, 0, 'S');
    std::filesystem::create_symlink(directory / "100", directory / "self");
  }
  void add(int process, int rank, char state, const std::string& job = "job.1", const std::string& exe = "/trainer") {
    const std::string path = directory / std::to_string(process);
    std::filesystem::create_directory(path);
    std::filesystem::create_symlink(exe, path + "/exe");
    std::ofstream(path + "/environ") << "A=1" << '\0' << "PMIX_NAMESPACE=" << job << '\0' << "PMIX_RANK=" << rank
                                     << '\0';
    std::ofstream(path + "/stat") << process << " (a ) b) " << state << " 1 2 3";
  }
  std::string describe(int expected) const {
    return describe_local_ranks(with("OMPI_COMM_WORLD_LOCAL_SIZE", expected), directory / "");
  }
  bool is_lowest(int rank) const { return is_lowest_local_rank(with("PMIX_RANK", rank), directory / ""); }
  // The environment of a rank of the job.
  static EnvironmentLookup with(const std::string& variable, int value) {
    return [=](const std::string& name) -> std::optional<std::string> {
      if (name == "PMIX_NAMESPACE") return "job.1";
      return name == variable ? std::optional(std::to_string(value)) : std::nullopt;
    };
  }
  ScratchDirectory directory;
};

}  // namespace

TEST_CASE("a suspended rank of this host is named before MPI has started, others are not blamed") {
  FakeProc proc;
  proc.add(101, 1, 'T');
  proc.add(102, 2, 'R');
  proc.add(103, 3, 'T', "job.2");
  proc.add(104, 4, 'T', "job.1", "/bin/sh");
  CHECK(proc.describe(3) == "rank 1 is suspended (process 101)");
}

TEST_CASE("ranks that do not run the program are counted, and those that do are named") {
  FakeProc proc;
  proc.add(102, 2, 'R');
  CHECK(proc.describe(4) == "2 of 4 ranks of this host do not run this program (those that do: 0, 2)");
  CHECK(proc.describe(2) == "all 2 ranks of this host are alive: look at the other hosts and the network");
}

TEST_CASE("the lowest rank of a host that is not suspended is found") {
  FakeProc proc;
  proc.add(101, 1, 'R');
  CHECK(proc.is_lowest(0));
  CHECK_FALSE(proc.is_lowest(1));
  FakeProc suspended;
  suspended.add(101, 1, 'T');
  CHECK_FALSE(suspended.is_lowest(2));
  std::ofstream(suspended.directory / "100/stat") << "100 (a) T 1 2 3";
  CHECK(suspended.is_lowest(2));
  CHECK(is_lowest_local_rank([](const char*) { return std::nullopt; }));
}

TEST_CASE("without a launcher that says which processes belong together nothing is claimed") {
  CHECK_THAT(describe_local_ranks([](const char*) { return std::nullopt; }), ContainsSubstring("cannot be known"));
}
