// The device as cuDNN serializes it, and what the libraries say of themselves, as one JSON object.
#include <cublas_v2.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>
#include <nccl.h>

#include <nlohmann/json.hpp>

#include "test/gpu_lab/training_graph.h"

namespace lockstep::lab {
namespace {

// The text in which cuDNN describes the device, without zero bytes and space at its end. It should be JSON, but nothing
// here depends on that. Null when cuDNN does not describe the device, which the fake device's cannot.
nlohmann::json as_cudnn_sees_it(int device) {
  cudnn_frontend::DeviceProperties properties;
  std::vector<uint8_t> bytes;
  if (properties.set_device_id(device).build().is_bad() || properties.serialize(bytes).is_bad()) return nullptr;
  std::string text(bytes.begin(), bytes.end());
  text.resize(text.find_last_not_of(std::string_view("\0 \t\r\n", 5)) + 1);
  return text;
}

}  // namespace

void describe() {
  int runtime = 0, driver = 0, device = 0, nccl = 0, cublas[3] = {};
  check(cudaRuntimeGetVersion(&runtime), "the runtime's version");
  check(cudaDriverGetVersion(&driver), "the driver's version");
  check(cudaGetDevice(&device), "the current device");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "the device's properties");
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "the device's memory");
  (void)ncclGetVersion(&nccl);
  for (int i = 0; i < 3; ++i) (void)cublasGetProperty(static_cast<libraryPropertyType>(i), &cublas[i]);
  const nlohmann::ordered_json description = {{"name", properties.name},
                                              {"capability", fmt::format("{}.{}", properties.major, properties.minor)},
                                              {"multiprocessors", properties.multiProcessorCount},
                                              {"l2_bytes", properties.l2CacheSize},
                                              {"free_bytes", free_bytes},
                                              {"total_bytes", total_bytes},
                                              {"copy_engines", properties.asyncEngineCount},
                                              {"driver", driver},
                                              {"runtime", runtime},
                                              {"cudnn", cudnnGetVersion()},
                                              {"cublas", fmt::format("{}.{}.{}", cublas[0], cublas[1], cublas[2])},
                                              {"nccl", nccl},
                                              {"cudnn_device", as_cudnn_sees_it(device)}};
  // Bytes that are no UTF-8 are replaced.
  fmt::print("{}\n", description.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace lockstep::lab
