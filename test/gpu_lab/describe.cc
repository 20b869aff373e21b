// The device as cuDNN serializes it, and what the libraries say of themselves, as one JSON object.
#include <cublas_v2.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>
#include <nccl.h>

#include <iostream>

#include "test/gpu_lab/training_graph.h"

namespace lockstep::lab {
namespace {

// As JSON; null when cuDNN does not describe it, which the fake device's cannot.
std::string as_cudnn_sees_it(int device) {
  cudnn_frontend::DeviceProperties properties;
  std::vector<uint8_t> bytes;
  if (properties.set_device_id(device).build().is_bad() || properties.serialize(bytes).is_bad()) return "null";
  return {bytes.begin(), bytes.end()};
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
  fmt::print("{{\"name\": \"{}\", \"capability\": \"{}.{}\", \"multiprocessors\": {}, \"l2_bytes\": {},\n",
             properties.name, properties.major, properties.minor, properties.multiProcessorCount,
             properties.l2CacheSize);
  fmt::print("\"free_bytes\": {}, \"total_bytes\": {}, \"copy_engines\": {},\n", free_bytes, total_bytes,
             properties.asyncEngineCount);
  fmt::print("\"driver\": {}, \"runtime\": {}, \"cudnn\": {}, \"cublas\": \"{}.{}.{}\", \"nccl\": {},\n", driver,
             runtime, cudnnGetVersion(), cublas[0], cublas[1], cublas[2], nccl);
  fmt::print("\"cudnn_device\": {}}}\n", as_cudnn_sees_it(device));
}

}  // namespace lockstep::lab
