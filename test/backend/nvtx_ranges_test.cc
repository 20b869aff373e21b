#include "backend/cuda/nvtx_ranges.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// What the attached tool has written down.
std::string recorded() {
  const char* const path = std::getenv("NVTX_INJECTION64_PATH");
  require(path, "no tool is attached");
  void* const tool = ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  require(tool, "NVTX has not loaded {}", path);
  const auto lines = reinterpret_cast<const char* (*)()>(::dlsym(tool, "nvtx_recorder_lines"));
  require(lines, "{} does not tell what it has recorded", path);
  return lines();
}

// The lines of a pass over a schedule's nodes from `begin` to `end`, in the order in which they run.
std::string lines_of(const Executable& executable, int32_t begin, int32_t end, const std::string& indent) {
  std::string lines;
  for (int32_t p = begin; p < end; ++p) {
    lines += indent + executable.graph().node(executable.schedule().order[static_cast<size_t>(p)]).name + '\n';
  }
  return lines;
}

}  // namespace

// By name, in a process that a tool is attached to.
TEST_CASE("spans are ranges of an attached tool, nested as they are and named as layers are", "[attached]") {
  SpanObserver* const ranges = cuda::nvtx_ranges();
  REQUIRE(ranges);
  REQUIRE(ranges == cuda::nvtx_ranges());
  const auto backend = make_backend("reference", {});
  Net net(*backend, block_net(small_options()), {});
  net.fill_at_random(1);
  net.forward();  // before anybody looks
  const auto end = static_cast<int32_t>(net.executable().schedule().order.size());
  const int32_t middle = net.executable().schedule().forward_end;
  observe_spans(ranges);
  {
    const TraceScope step("step 7");
    {
      const TraceScope forward("forward");
      net.forward();
    }
    std::thread([] { const TraceScope reading("prepare samples"); }).join();  // no business of this thread's ranges
    const TraceScope backward("backward");
    net.backward();
    observe_spans(nullptr);  // what began under it still ends
  }
  net.forward();
  REQUIRE(middle > 10);
  REQUIRE(end > middle + 10);
  CHECK(recorded() == "step 7\n  forward\n" + lines_of(net.executable(), 0, middle, "    ") + "  backward\n" +
                          lines_of(net.executable(), middle, end, "    "));
  observe_spans(ranges);
  { const TraceScope next("step 8"); }
  observe_spans(nullptr);
  CHECK(recorded().ends_with("\nstep 8\n"));
}

TEST_CASE("where no tool is attached nothing observes spans", "[alone]") { CHECK(cuda::nvtx_ranges() == nullptr); }
