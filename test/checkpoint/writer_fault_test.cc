// Saving on disks that are full, failing or slow: system calls of checkpoint_save_tool made to fail by strace, and a
// real full file system where this machine allows a mount.
#include <filesystem>

#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

const std::string kTool = LOCKSTEP_SAVE_TOOL;

bool strace_works() {
  static const bool works = command_works("strace -f -qq -o /dev/null -e inject=flock:error=ENOLCK true");
  if (!works) WARN("skipped: strace cannot trace here");
  return works;
}

// Runs the tool on `folder` with calls on the temporary of step 2 changed as `injection` says.
CommandResult run_tool(const ScratchDirectory& directory, const std::string& injection, const std::string& actions) {
  const std::string only =
      injection.find("flock") == std::string::npos ? "-P " + (directory / "step-00000002.h5.tmp") : "";
  // A leak checker cannot work in a traced process.
  return run_command(fmt::format("ASAN_OPTIONS=detect_leaks=0 strace -f -qq -o /dev/null {} -e {} {} {} 1000 {}", only,
                                 injection, kTool, directory.path(), actions));
}

void check_only_steps(const ScratchDirectory& directory, const std::vector<int64_t>& steps) {
  std::vector<std::string> expected;
  for (const int64_t step : steps) {
    expected.push_back(checkpoint_name(step));
    CHECK_NOTHROW(CheckpointReader::open(directory / checkpoint_name(step)));
  }
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().filename() != "latest") found.push_back(entry.path().filename());
  }
  std::sort(found.begin(), found.end());
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("a failing disk gives a clean error, leaves the files before intact and lets the next save work") {
  if (!strace_works()) return;
  struct Fault {
    std::string injection;
    std::string reason;
  };
  const std::vector<Fault> faults{
      {"inject=write:error=ENOSPC", "cannot write: No space left on device; "},
      {"inject=write:error=EIO", "cannot write: Input/output error"},
      {"inject=fsync:error=EIO", "cannot flush to disk: Input/output error"},
      {"inject=close:error=ENOSPC:when=1", "cannot close: No space left on device; "},
      {"inject=rename:error=EACCES", "cannot rename the finished file into place: Permission denied"},
      {"inject=openat:error=EROFS", "cannot create: Read-only file system"},
      {"inject=pread64:error=EIO", "what was written reads back differently"},
  };
  for (const Fault& fault : faults) {
    const ScratchDirectory directory;
    const CommandResult result = run_tool(directory, fault.injection, "1 2 3 open");
    CAPTURE(fault.injection, result.output);
    CHECK(result.status == 0);
    CHECK_THAT(result.output,
               ContainsSubstring("step 1 saved\nstep 2 failed with 5: " + directory.path() + "/step-00000002.h5"));
    CHECK_THAT(result.output, ContainsSubstring(fault.reason));
    CHECK_THAT(result.output, ContainsSubstring("step 3 saved\nnewest 3\n"));
    check_only_steps(directory, {1, 3});
  }
}

TEST_CASE("a directory that cannot be listed after a save is a warning: the save has not failed") {
  if (!strace_works()) return;
  const ScratchDirectory directory;
  // The first two calls list the directory when the writer starts.
  const CommandResult result = run_command(
      fmt::format("ASAN_OPTIONS=detect_leaks=0 strace -f -qq -o /dev/null -P {} -e inject=getdents64:error=EIO:when=3+ "
                  "{} {} 1000 1 2",
                  directory.path(), kTool, directory.path()));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK_THAT(result.output, ContainsSubstring("step 1 saved\n"));
  CHECK_THAT(result.output, ContainsSubstring("step 2 saved\n"));
  CHECK_THAT(result.output, ContainsSubstring(directory.path() + ": older checkpoints are not deleted: "));
  check_only_steps(directory, {1, 2});
}

TEST_CASE("neither saving nor reading needs file locks") {
  if (!strace_works()) return;
  for (const char* error : {"ENOLCK", "EOPNOTSUPP"}) {
    const ScratchDirectory directory;
    const CommandResult result = run_tool(directory, fmt::format("inject=flock:error={}", error), "1 2 open");
    CHECK(result.output == "step 1 saved\nstep 2 saved\nnewest 2\n");
    CHECK(result.status == 0);
  }
}

TEST_CASE("a slow disk holds nobody up: the writer is busy meanwhile, the wait is told once, the file is whole") {
  if (!strace_works()) return;
  const ScratchDirectory directory;
  const CommandResult result = run_tool(directory, "inject=fsync:delay_enter=1500000", "slow:0.3 1 overlap:2 open");
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK_THAT(result.output, ContainsSubstring("busy\n"));
  CHECK_THAT(result.output, ContainsSubstring("went on\n"));
  CHECK_THAT(result.output, ContainsSubstring("newest 2\n"));
  const std::string warning = "warning: checkpoint step 2 still writing after ";
  const size_t at = result.output.find(warning);
  REQUIRE(at != std::string::npos);
  CHECK(result.output.find(warning, at + 1) == std::string::npos);
  CHECK_THAT(result.output, ContainsSubstring(", path " + (directory / "step-00000002.h5\n")));
}

TEST_CASE("a disk that does not answer holds the program's end up for a limited time only") {
  if (!strace_works()) return;
  const ScratchDirectory directory;
  const CommandResult left = run_tool(directory, "inject=fsync:delay_enter=3000000", "give_up:0.5 1 leave:2");
  CAPTURE(left.output);
  CHECK(left.status == 0);
  CHECK_THAT(left.output, ContainsSubstring((directory / "step-00000002.h5") + ": given up after "));
  CHECK_THAT(left.output, ContainsSubstring("; the disk does not answer\n"));
  CHECK(path_exists(directory / "step-00000002.h5.tmp"));
  CHECK(run_command(fmt::format("{} {} 1 open", kTool, directory.path())).output == "newest 1\n");
  check_only_steps(directory, {1});
}

TEST_CASE("a full file system refuses the third checkpoint, keeps two, and takes the next when there is room") {
  const ScratchDirectory directory;
  const std::string mount = "mount -t tmpfs -o size=2m tmpfs " + directory.path();
  if (!command_works("unshare -m sh -c '" + mount + "'")) {
    WARN("skipped: no right to mount a file system");
    return;
  }
  const CommandResult result =
      run_command(fmt::format("unshare -m sh -c '{} && {} {} 200000 1 2 3 open rm:step-00000001.h5 4 open && ls {}'",
                              mount, kTool, directory.path(), directory.path()));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK_THAT(result.output, ContainsSubstring("step 2 saved\nstep 3 failed with 5: "));
  CHECK_THAT(result.output, ContainsSubstring("/step-00000003.h5: cannot write: No space left on device; 80"));
  CHECK_THAT(result.output, ContainsSubstring(" bytes free on this file system\nnewest 2\nstep 4 saved\nnewest 4\n"));
  CHECK_THAT(result.output, ContainsSubstring("newest 4\nlatest\nstep-00000002.h5\nstep-00000004.h5\n"));
}
