#include <dlfcn.h>

#include <array>

#include "backend/backends.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/plugin.h"
#include "lockstep/base/trace.h"

namespace lockstep {
namespace {

constexpr const char* kPlugin = "lockstep_cuda.so";
constexpr const char* kDriver = "libcuda.so.1";

// The part of the driver's interface that finds devices; all its functions return 0 on success.
class Driver {
 public:
  Driver() : library_(::dlopen(kDriver, RTLD_NOW | RTLD_LOCAL)) {}

  std::string unavailable_reason() const {
    if (!library_) return fmt::format("no NVIDIA driver ({} is not installed)", kDriver);
    if (const int error = call("cuInit", 0U)) return fmt::format("the NVIDIA driver says: {}", text(error));
    int devices = 0;
    if (const int error = call("cuDeviceGetCount", &devices)) {
      return fmt::format("the NVIDIA driver says: {}", text(error));
    }
    return devices > 0 ? "" : "the NVIDIA driver sees no device";
  }

  // May be called only if unavailable_reason() is empty.
  std::vector<std::string> ids() const {
    int devices = 0;
    require(call("cuDeviceGetCount", &devices) == 0, "the NVIDIA driver has lost its devices");
    std::vector<std::string> ids;
    for (int i = 0; i < devices; ++i) {
      int device = 0;
      std::array<unsigned char, 16> uuid{};
      const bool known = call("cuDeviceGet", &device, i) == 0 && call("cuDeviceGetUuid_v2", uuid.data(), device) == 0;
      require(known, "the NVIDIA driver does not tell the UUID of device {}", i);
      ids.push_back(fmt::format("GPU-{:02x}", fmt::join(uuid, "")));
    }
    return ids;
  }

 private:
  static constexpr int kMissing = 500;  // CUDA_ERROR_NOT_FOUND

  template <class... Args>
  int call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(::dlsym(library_, name));
    return function ? function(args...) : kMissing;
  }
  std::string text(int error) const {
    const char* text = nullptr;
    if (call("cuGetErrorString", error, &text) != 0 || !text) return fmt::format("error {}", error);
    return text;
  }

  void* library_;  // stays open, because device libraries do not unload cleanly
};

// Makes every later span visible to an attached profiler as an NVTX range.
void observe_with_nvtx() {
  using Ranges = SpanObserver*();
  const auto ranges = reinterpret_cast<Ranges*>(plugin_function(kPlugin, "lockstep_nvtx_ranges"));
  if (SpanObserver* const observer = ranges()) {
    observe_spans(observer);
    log_info("steps and layers are NVTX ranges of the tool that is attached");
  }
}

}  // namespace

const std::string& gpu_unavailable_reason() {
  static const std::string reason =
      find_plugin(kPlugin) ? Driver().unavailable_reason() : std::string("this installation has no CUDA plugin");
  return reason;
}

std::vector<std::string> gpu_ids() {
  return gpu_unavailable_reason().empty() ? Driver().ids() : std::vector<std::string>{};
}

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  if (!gpu_unavailable_reason().empty()) fail(ExitCode::config, "no usable GPU: {}", gpu_unavailable_reason());
  using Make = Backend*(const BackendOptions*);
  const auto make = reinterpret_cast<Make*>(plugin_function(kPlugin, "lockstep_make_cuda_backend"));
  std::unique_ptr<Backend> backend(make(&options));
  observe_with_nvtx();
  return backend;
}

}  // namespace lockstep
