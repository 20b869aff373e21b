// The table of backends for tests of this program: the CUDA backend for a described H100, its kernels on the host, in
// the place of the one that needs a GPU.
#include <array>
#include <fstream>
#include <iterator>
#include <string>

#include "backend/backends.h"
#include "backend/cuda/cuda_backend.h"
#include "lockstep/base/error.h"

namespace lockstep {

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  if (name == "reference") return make_reference_backend(options);
  if (name != "cuda") fail(ExitCode::config, "there is no backend \"{}\"; there are: reference, cuda", name);
  std::ifstream file(LOCKSTEP_DEVICE_DIR "/h100.json");
  const std::string device{std::istreambuf_iterator<char>(file), {}};
  return cuda::make_backend_for_described_device(device, options);
}

std::span<const std::string_view> backend_names() {
  static constexpr std::array<std::string_view, 2> kNames = {"cuda", "reference"};
  return kNames;
}

const std::string& gpu_unavailable_reason() {
  static const std::string none;
  return none;
}

}  // namespace lockstep
