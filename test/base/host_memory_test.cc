#include "lockstep/base/host_memory.h"

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("a host's memory is what the kernel has, with swap, or what the tightest control group leaves of it") {
  const ScratchDirectory root;
  write_file(root / "meminfo",
             "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    800 kB\nSwapTotal:       500 kB\n");
  write_file(root / "membership", "0::/job/step\n");
  const HostMemoryFiles files{
      .meminfo = root / "meminfo", .membership = root / "membership", .control_groups = root.path()};
  CHECK(host_memory(files).total == 1500 * 1024);
  CHECK(host_memory(files).available == 800 * 1024);

  write_file(root / "job/step/memory.max", "max\n");
  write_file(root / "job/memory.max", "614400\n");
  CHECK(host_memory(files).total == 600 * 1024);
  CHECK(host_memory(files).available == 600 * 1024);

  write_file(root / "membership", "4:memory:/old\n0::/\n");
  write_file(root / "memory/old/memory.limit_in_bytes", "102400\n");
  CHECK(host_memory(files).total == 100 * 1024);
  write_file(root / "memory/old/memory.limit_in_bytes", "9223372036854771712\n");  // version 1's "no limit"
  CHECK(host_memory(files).total == 1500 * 1024);

  std::filesystem::remove(root / "meminfo");
  CHECK(host_memory(files).total == -1);
  CHECK(host_memory(files).available == -1);
  CHECK(host_memory().total > 0);
}
