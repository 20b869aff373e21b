#include "lockstep/base/host_memory.h"

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("a host's memory is memory and swap within the lowest limits of its control groups") {
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
  CHECK(host_memory(files).total == 1100 * 1024);
  write_file(root / "job/memory.swap.max", "102400\n");
  CHECK(host_memory(files).total == 700 * 1024);
  write_file(root / "job/step/memory.swap.max", "0\n");
  CHECK(host_memory(files).total == 600 * 1024);
  CHECK(host_memory(files).available == 600 * 1024);

  write_file(root / "membership", "4:memory:/old\n0::/\n");
  write_file(root / "memory/old/memory.limit_in_bytes", "102400\n");
  CHECK(host_memory(files).total == 600 * 1024);
  write_file(root / "memory/old/memory.memsw.limit_in_bytes", "204800\n");
  CHECK(host_memory(files).total == 200 * 1024);
  CHECK(host_memory(files).available == 100 * 1024);
  for (const char* name : {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}) {
    write_file(root / (std::string("memory/old/") + name), "9223372036854771712\n");  // version 1's "no limit"
  }
  CHECK(host_memory(files).total == 1500 * 1024);

  std::filesystem::remove(root / "meminfo");
  CHECK(host_memory(files).total == -1);
  CHECK(host_memory(files).available == -1);
  CHECK(host_memory().total > 0);
}

TEST_CASE("a host that refuses to overcommit has the memory that can be committed") {
  const ScratchDirectory root;
  write_file(root / "meminfo",
             "MemTotal: 1000 kB\nMemAvailable: 800 kB\nSwapTotal: 0 kB\nCommitLimit: 500 kB\nCommitted_AS: 300 kB\n");
  const HostMemoryFiles files{.meminfo = root / "meminfo",
                              .overcommit = root / "overcommit",
                              .membership = root / "none",
                              .control_groups = ""};
  for (const char* mode : {"0\n", "1\n"}) {
    write_file(root / "overcommit", mode);
    CHECK(host_memory(files).total == 1000 * 1024);
    CHECK(host_memory(files).available == 800 * 1024);
  }
  write_file(root / "overcommit", "2\n");
  CHECK(host_memory(files).total == 500 * 1024);
  CHECK(host_memory(files).available == 200 * 1024);
}
