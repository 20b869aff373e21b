// cuDNN of the fake device. Planning is cuDNN's own, for a GPU that is only described: which engines there are, how
// they are ranked, what workspace they want. Only what is executed is ours (cudnn_execute.cc).
#include "test/fake_gpu/cudnn.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "described_device.h"  // made by CMake
#include "lockstep/base/random.h"
#include "test/fake_gpu/cudnn_descriptors.h"
#include "test/fake_gpu/runtime.h"

namespace lockstep::fake_gpu {
namespace {

template <class Function>
Function* real(const char* name) {
  static void* const here = ::dlopen(LOCKSTEP_CUDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  static void* const library = here ? here : ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);  // on another machine
  void* const function = library ? ::dlsym(library, name) : nullptr;
  if (!function) {
    std::fprintf(stderr, "fake GPU: cuDNN has no %s: %s\n", name, ::dlerror());
    std::abort();
  }
  return reinterpret_cast<Function*>(function);
}

#define REAL(name) (real<decltype(name)>(#name))

struct Registry {
  std::mutex mutex;
  std::unordered_map<cudnnBackendDescriptor_t, DescriptorPtr> descriptors;
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:  // enumerations, float and int32
      return 4;
  }
}

void keep(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
          int64_t count, const void* elements) {
  const DescriptorPtr descriptor = find_descriptor(handle);
  if (!descriptor || !elements) return;
  Attribute attribute;
  const auto* const begin = static_cast<const std::byte*>(elements);
  attribute.bytes.assign(begin, begin + static_cast<size_t>(count) * bytes_of(type));
  for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; ++i) {
    attribute.children.push_back(find_descriptor(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]));
  }
  descriptor->attributes[name] = std::move(attribute);
}

// The described GPU, which real handles would stand for.
cudnnBackendDescriptor_t described_device() {
  static const cudnnBackendDescriptor_t device = [] {
    cudnnBackendDescriptor_t made = nullptr;
    if (REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) != CUDNN_STATUS_SUCCESS ||
        REAL(cudnnBackendSetAttribute)(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                       sizeof kDescribedDevice - 1, kDescribedDevice) != CUDNN_STATUS_SUCCESS ||
        REAL(cudnnBackendFinalize)(made) != CUDNN_STATUS_SUCCESS) {
      std::fprintf(stderr, "fake GPU: cuDNN does not know the device %s\n", kDescribedDevice);
      std::abort();
    }
    return made;
  }();
  return device;
}

cudnnStatus_t set_device(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name) {
  const cudnnBackendDescriptor_t device = described_device();
  return REAL(cudnnBackendSetAttribute)(handle, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
}

struct DnnHandle {
  cudaStream_t stream = nullptr;
};

thread_local std::string error_text;

cudnnStatus_t status_of(cudaError_t status) {
  if (status == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  error_text = cudaGetErrorString(status);
  return CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

DescriptorPtr find_descriptor(cudnnBackendDescriptor_t handle) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().descriptors.find(handle);
  return found == registry().descriptors.end() ? nullptr : found->second;
}

size_t workspace_bytes_of(cudnnBackendDescriptor_t plan) {
  int64_t bytes = 0, count = 0;
  if (REAL(cudnnBackendGetAttribute)(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                     &bytes) != CUDNN_STATUS_SUCCESS) {
    throw std::runtime_error("cuDNN does not say what workspace a plan wants");
  }
  return static_cast<size_t>(bytes);
}

uint64_t number_of(cudnnBackendDescriptor_t plan) {
  int64_t count = 0;
  const auto get = [&](int64_t wanted, char* text) {
    if (REAL(cudnnBackendGetAttribute)(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, wanted,
                                       &count, text) != CUDNN_STATUS_SUCCESS) {
      throw std::runtime_error("cuDNN does not describe a plan");
    }
  };
  get(0, nullptr);
  std::string text(static_cast<size_t>(count), '\0');
  get(count, text.data());
  return fnv1a64(text);
}

// A configuration that the heuristics made belongs to the graph that they were asked about.
const Descriptor& graph_of(const Descriptor& plan) {
  const Descriptor& config = plan.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Descriptor& owner =
      config.has(CUDNN_ATTR_ENGINECFG_ENGINE) ? config.child(CUDNN_ATTR_ENGINECFG_ENGINE) : config;
  return owner.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

size_t cudnnGetVersion() { return REAL(cudnnGetVersion)(); }
const char* cudnnGetErrorString(cudnnStatus_t status) { return REAL(cudnnGetErrorString)(status); }
void cudnnGetLastErrorString(char* message, size_t size) {
  if (error_text.empty()) return REAL(cudnnGetLastErrorString)(message, size);
  std::snprintf(message, size, "%s", error_text.c_str());
  error_text.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return status_of(call([&](Lock&) {
    expect_no_capture("cudnnCreate");
    *handle = reinterpret_cast<cudnnHandle_t>(new DnnHandle);
  }));
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<DnnHandle*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return status_of(call([&](Lock&) {
    (void)stream_of(stream);
    reinterpret_cast<DnnHandle*>(handle)->stream = stream;
  }));
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = reinterpret_cast<DnnHandle*>(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* handle) {
  const cudnnStatus_t status = REAL(cudnnBackendCreateDescriptor)(type, handle);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  auto descriptor = std::make_shared<Descriptor>();
  descriptor->type = type;
  const std::lock_guard lock(registry().mutex);
  registry().descriptors[*handle] = std::move(descriptor);
  return status;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  {
    const std::lock_guard lock(registry().mutex);
    registry().descriptors.erase(handle);
  }
  return REAL(cudnnBackendDestroyDescriptor)(handle);
}

// Handles are ours, so the described device takes their place.
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  keep(handle, name, type, count, elements);
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (type == CUDNN_TYPE_HANDLE) return set_device(handle, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  return REAL(cudnnBackendSetAttribute)(handle, name, type, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                                       void* elements) {
  const cudnnStatus_t status = REAL(cudnnBackendGetAttribute)(handle, name, type, wanted, count, elements);
  if (status != CUDNN_STATUS_SUCCESS || name != CUDNN_ATTR_ENGINEHEUR_RESULTS || !elements) return status;
  const DescriptorPtr heuristics = find_descriptor(handle);
  for (int64_t i = 0; i < *count && i < wanted; ++i) {
    const DescriptorPtr config = find_descriptor(static_cast<cudnnBackendDescriptor_t*>(elements)[i]);
    if (!config || !heuristics) continue;
    config->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = heuristics->at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  }
  return status;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  const DescriptorPtr descriptor = find_descriptor(handle);
  const auto needs = [&](cudnnBackendDescriptorType_t type, cudnnBackendAttributeName_t device) {
    return descriptor && descriptor->type == type && !descriptor->has(device);
  };
  if (needs(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)) {
    (void)set_device(handle, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  }
  if (needs(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_DEVICEPROP)) {
    (void)set_device(handle, CUDNN_ATTR_ENGINE_DEVICEPROP);
  }
  return REAL(cudnnBackendFinalize)(handle);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return status_of(call([&](Lock&) {
    const DescriptorPtr made = find_descriptor(plan);
    if (made && graph_of(*made).value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) != handle) {
      throw Refused(cudaErrorInvalidValue, "cuDNN: a plan runs on another handle than it was made for");
    }
    if (made && !std::exchange(made->executed, true)) expect_no_capture("a plan's first run, which may load kernels,");
    submit(stream_of(reinterpret_cast<DnnHandle*>(handle)->stream), execution_of(plan, pack));
  }));
}
}
