#include <algorithm>

#include "lockstep/backend/backend.h"
#include "lockstep/base/error.h"
#include "lockstep/base/plugin.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("the GPU is a backend where it can be used, and elsewhere an error that says why not") {
  const bool listed = std::ranges::count(backend_names(), "cuda") == 1;
  CHECK(listed == gpu_unavailable_reason().empty());
  if (listed) return;
  try {
    make_backend("cuda", {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::config);
    CHECK(error.what() == "no usable GPU: " + gpu_unavailable_reason());
  }
}

#ifdef LOCKSTEP_HAVE_CUDA
TEST_CASE("the CUDA plugin opens, whether there is a driver or not: the program has all that it takes from it") {
  REQUIRE(find_plugin("lockstep_cuda.so"));
  CHECK(plugin_function("lockstep_cuda.so", "lockstep_make_cuda_backend") != nullptr);
  CHECK(plugin_function("lockstep_cuda.so", "lockstep_nvtx_ranges") != nullptr);
  CHECK_THROWS_WITH(plugin_function("lockstep_cuda.so", "lockstep_make_coffee"),
                    ContainsSubstring("has no function lockstep_make_coffee"));
}
#endif
