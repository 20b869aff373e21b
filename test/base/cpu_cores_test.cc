#include "lockstep/base/cpu_cores.h"

#include <sched.h>

#include <thread>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("cpu.max and the cfs files give cores, and their words for unlimited give none") {
  CHECK(parse_cpu_max("200000 100000\n") == 2.0);
  CHECK(parse_cpu_max("150000 100000\n") == 1.5);
  CHECK_FALSE(parse_cpu_max("max 100000\n").has_value());
  CHECK_FALSE(parse_cpu_max("").has_value());
  CHECK_FALSE(parse_cpu_max("200000").has_value());
  CHECK_FALSE(parse_cpu_max("200000us 100000").has_value());
  CHECK(parse_cfs_quota("50000\n", "100000\n") == 0.5);
  CHECK_FALSE(parse_cfs_quota("-1\n", "100000\n").has_value());
  CHECK_FALSE(parse_cfs_quota("50000", "0").has_value());
}

TEST_CASE("OMP_NUM_THREADS counts by its first level, and nonsense not at all") {
  CHECK(parse_omp_num_threads("4") == 4);
  CHECK(parse_omp_num_threads("4,2") == 4);
  CHECK(parse_omp_num_threads(" 4 , 2,\t1") == 4);
  CHECK(parse_omp_num_threads("1024") == 1024);
  for (const char* text : {"", " ", "0", "-3", "many", "500m", "1e3", "4.0", "+4", "4;2", "4 2", "4,", ",4", "4,,2",
                           "4,x", "1025", "99999", "18446744073709551620"}) {
    INFO("text '" << text << "'");
    CHECK(parse_omp_num_threads(text) == std::nullopt);
  }
}

TEST_CASE("the tightest quota on the path to the process's group counts") {
  const ScratchDirectory root;
  write_file(root / "membership", "0::/outer/inner\n");
  SECTION("none set") {
    write_file(root / "outer/inner/cpu.max", "max 100000\n");
    CHECK_FALSE(control_group_quota(root / "membership", root.path()).has_value());
  }
  SECTION("set on an outer group") {
    write_file(root / "outer/cpu.max", "300000 100000\n");
    write_file(root / "outer/inner/cpu.max", "800000 100000\n");
    CHECK(control_group_quota(root / "membership", root.path()) == 3.0);
  }
  SECTION("the path belongs to the world outside the container") {
    write_file(root / "cpu.max", "250000 100000\n");
    CHECK(control_group_quota(root / "membership", root.path()) == 2.5);
  }
  SECTION("version 1") {
    write_file(root / "membership", "5:cpuset:/a\n4:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/\n");
    write_file(root / "cpu/b/cpu.cfs_quota_us", "400000\n");
    write_file(root / "cpu/b/cpu.cfs_period_us", "100000\n");
    CHECK(control_group_quota(root / "membership", root.path()) == 4.0);
  }
  SECTION("no membership file") { CHECK_FALSE(control_group_quota(root / "missing", root.path()).has_value()); }
}

TEST_CASE("a rank's cores are its share of mask and quota, and never none") {
  CHECK(usable_cores({.cpus = std::vector<int>(8)}) == 8);
  CHECK(usable_cores({.cpus = std::vector<int>(8), .quota = 2.5}) == 3);
  CHECK(usable_cores({.cpus = std::vector<int>(2), .quota = 16.0}) == 2);
  CHECK(usable_cores({.cpus = std::vector<int>(8), .quota = 0.2}) == 1);
  // Four unbound ranks on eight cores divide them; four bound ranks keep the one they have.
  CHECK(usable_cores({.cpus = std::vector<int>(8)}, {.local_ranks = 4, .same_mask_ranks = 4}) == 2);
  CHECK(usable_cores({.cpus = std::vector<int>(1)}, {.local_ranks = 4, .same_mask_ranks = 1}) == 1);
  CHECK(usable_cores({.cpus = std::vector<int>(2)}, {.local_ranks = 4, .same_mask_ranks = 4}) == 1);
  // Binding does not multiply the quota of the one control group around all ranks.
  CHECK(usable_cores({.cpus = std::vector<int>(4), .quota = 4.0}, {.local_ranks = 2, .same_mask_ranks = 1}) == 2);
}

TEST_CASE("threads: what is asked for, then OMP_NUM_THREADS, then the cores") {
  CHECK(thread_budget({.cores = 1}).compute == 1);
  CHECK(thread_budget({.cores = 16}).compute == 16);
  CHECK(thread_budget({.cores = 16, .omp_num_threads = 4}).compute == 4);
  CHECK(thread_budget({.cores = 16, .compute = 20, .omp_num_threads = 4}).compute == 20);

  CHECK(thread_budget({.cores = 1}).workers == 1);
  CHECK(thread_budget({.cores = 2}).workers == 1);
  CHECK(thread_budget({.cores = 16}).workers == 4);
  CHECK(thread_budget({.cores = 128}).workers == 8);
  CHECK(thread_budget({.cores = 1, .workers = 6, .omp_num_threads = 4}).workers == 6);
}

TEST_CASE("the kernel's answer follows the affinity mask") {
  const CpuCores before = cpu_cores();
  REQUIRE_FALSE(before.cpus.empty());
  CHECK(cpu_cores().cpus == before.cpus);

  // On a thread of its own, so that the mask of the test program stays as it is.
  CpuCores bound;
  bool was_bound = false;
  std::thread([&] {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    int last = 0;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &allowed)) last = core;
    }
    CPU_ZERO(&allowed);
    CPU_SET(last, &allowed);
    was_bound = sched_setaffinity(0, sizeof(allowed), &allowed) == 0;
    bound = cpu_cores();
  }).join();
  REQUIRE(was_bound);
  CHECK(bound.cpus == std::vector{before.cpus.back()});
}
