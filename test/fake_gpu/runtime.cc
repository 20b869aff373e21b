// The CUDA runtime of the fake device: what the plugin calls of streams, memory and graphs.
#include "test/fake_gpu/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <typeindex>
#include <utility>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/fake_gpu/device_count.h"
#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/planted.h"

namespace lockstep::fake_gpu {
namespace {

constexpr size_t kTotalBytes = size_t{64} << 30;

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaError_t explained = cudaSuccess;  // what `reason` is about
thread_local std::string reason, text;
thread_local int current_device = -1;    // none was chosen
std::atomic<int> device_of_process{-1};  // which all streams, events and memory of the fake belong to

// Which kernel of the process touches memory that it must not, FAKE_GPU_FAULT=N. 0: none.
int faulty_kernel() {
  const char* const number = std::getenv("FAKE_GPU_FAULT");
  return number ? std::atoi(number) : 0;
}

// Whether the sides of a copy are of the kind that the call states.
bool is_of_kind(const void* to, const void* from, cudaMemcpyKind kind) {
  const bool to_device = kind_of(to) == MemoryKind::device, from_device = kind_of(from) == MemoryKind::device;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    default:
      return kind == cudaMemcpyDefault;
  }
}

// The copies from the host's memory to a device's, by size. With FAKE_GPU_COPIES set, they are printed at the end.
struct Uploads {
  std::map<size_t, int> counts;
  ~Uploads() {
    if (!std::getenv("FAKE_GPU_COPIES")) return;
    for (const auto& [bytes, count] : counts) {
      std::fprintf(stderr, "fake GPU: %d copies of %zu bytes from the host\n", count, bytes);
    }
  }
} uploads;

// A copy reads and writes when it runs, but memory that is not pinned is read at the call.
Operation copy_operation(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  Operation copy{.what = fmt::format("a copy of {} bytes", bytes), .run = nullptr};
  if (!is_of_kind(to, from, kind)) {
    throw Refused(cudaErrorInvalidMemcpyDirection, copy.what + " between other kinds of memory than the call states");
  }
  for (const void* side : {static_cast<const void*>(to), from}) {
    if (kind_of(side) == MemoryKind::pageable) continue;
    if (const std::string trouble = trouble_with(side, bytes, true); !trouble.empty()) {
      throw Refused(cudaErrorInvalidValue, fmt::format("{}: {}", copy.what, trouble));
    }
    if (kind_of(side) == MemoryKind::pinned) copy.pinned.push_back({side, bytes});
  }
  if (kind_of(to) == MemoryKind::device && kind_of(from) != MemoryKind::device) ++uploads.counts[bytes];
  if (kind_of(from) != MemoryKind::pageable) {
    copy.run = [=] { std::memmove(to, from, bytes); };
    return copy;
  }
  const auto* const begin = static_cast<const char*>(from);
  const auto taken = std::make_shared<const std::string>(begin, bytes);
  copy.run = [=] { std::memcpy(to, taken->data(), bytes); };
  return copy;
}

void release_pinned(void* data) {
  if (const Work* user = Device::get().user_of(data, pinned_bytes(data))) {
    const std::string what = fmt::format("pinned memory is freed, but {} on stream {} has yet to use it",
                                         user->operation.what, user->stream);
    Device::get().fail(what);
    throw Refused(cudaErrorLaunchFailure, what);
  }
  if (const std::string trouble = free_pinned_memory(data); !trouble.empty()) {
    throw Refused(cudaErrorInvalidValue, trouble);
  }
}

}  // namespace

void expect_device() {
  int none = -1;
  if (device_of_process.compare_exchange_strong(none, 0)) current_device = 0;
  if (current_device < 0) {
    throw Refused(cudaErrorInvalidDevice, "a thread that has not called cudaSetDevice would work on device 0");
  }
}

cudaError_t remember(cudaError_t status, const std::string& why) {
  last_error = explained = status;
  reason = why;
  return status;
}

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

void enqueue_launch(const LaunchShape& shape, cudaStream_t stream, std::function<void()> kernel) {
  (void)call([&](Lock&) {
    if (!accepts(shape)) throw Refused(cudaErrorInvalidConfiguration, shape.kernel);
    Stream& its_stream = stream_of(stream);
    static auto& loaded = *new std::set<std::type_index>;
    if (loaded.insert(kernel.target_type()).second) {
      expect_no_capture(fmt::format("the first launch of {}, which may load it,", shape.kernel));
    }
    // FAKE_GPU_ALLOCATE=D:N plants an allocation, as of a library at its first use, in the N-th kernel on device D.
    if (its_stream.capture && ++its_stream.capture->kernels == number_for("FAKE_GPU_ALLOCATE", current_device)) {
      expect_no_capture(fmt::format("cudaMalloc by {}", shape.kernel));
    }
    static int kernels = 0;
    const bool faulty = ++kernels == faulty_kernel();
    submit(its_stream, {.what = shape.kernel, .run = [shape, faulty, kernel = std::move(kernel)] {
                          if (faulty) throw std::runtime_error("an illegal memory access was encountered");
                          emulate(shape, kernel);
                        }});
  });
}

extern "C" {

// ---- errors
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    default:
      return "another of CUDA's errors";
  }
}
const char* cudaGetErrorString(cudaError_t status) {
  text = status == explained ? fmt::format("fake GPU: {}", reason)
                             : fmt::format("fake GPU: error {}", static_cast<int>(status));
  return text.c_str();
}

// ---- the device
cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = std::max(current_device, 0);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count())
    return remember(cudaErrorInvalidDevice, fmt::format("no device {}", device));
  int other = -1;
  if (!device_of_process.compare_exchange_strong(other, device) && other != device) {
    return remember(cudaErrorInvalidDevice, fmt::format("device {} in a process that uses device {}", device, other));
  }
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  const char* const other = std::getenv("FAKE_GPU_OTHER");
  std::strcpy(properties->name, other && std::atoi(other) == device ? "another fake device" : "fake device");
  properties->major = 9;
  properties->totalGlobalMem = kTotalBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
// cuDNN's frontend looks for functions of the driver, and goes on without them.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  if (found) *found = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorSymbolNotFound;
}
cudaError_t cudaDeviceSynchronize() {
  return call([](Lock& lock) {
    expect_no_capture("cudaDeviceSynchronize");
    Device::get().wait_all(lock);
  });
}

// ---- memory
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kTotalBytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return call([&](Lock&) {
    expect_no_capture(fmt::format("cudaMalloc of {} bytes", bytes));
    *memory = allocate_device_memory(bytes);
    if (!*memory) throw Refused(cudaErrorMemoryAllocation, "out of memory");
  });
}
cudaError_t cudaFree(void* memory) {
  return call([&](Lock& lock) {
    if (!memory) return;
    expect_no_capture("cudaFree");
    Device::get().wait_all(lock);  // as CUDA does
    if (const std::string trouble = free_device_memory(memory); !trouble.empty()) {
      throw Refused(cudaErrorInvalidValue, trouble);
    }
  });
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return call([&](Lock&) {
    if ((flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) != 0) {
      throw Refused(cudaErrorInvalidValue, fmt::format("cudaHostAlloc with flags {:#x}", flags));
    }
    expect_no_capture(fmt::format("cudaHostAlloc of {} bytes", bytes));
    *memory = allocate_pinned_memory(bytes);
    if (!*memory) throw Refused(cudaErrorMemoryAllocation, "out of pinned memory");
  });
}
// Where CUDA waits for all copies, which hides that one was forgotten, this one calls it a fault.
cudaError_t cudaFreeHost(void* memory) {
  return call([&](Lock&) {
    if (!memory) return;
    expect_no_capture("cudaFreeHost");
    release_pinned(memory);
  });
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return call([&](Lock&) {
    expect_no_capture("cudaMemset");
    if (const std::string trouble = trouble_with(memory, bytes); !trouble.empty()) {
      throw Refused(cudaErrorInvalidValue, "cudaMemset: " + trouble);
    }
    submit(stream_of(nullptr), {.what = "cudaMemset", .run = [=] { std::memset(memory, value, bytes); }});
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&](Lock& lock) {
    expect_no_capture("cudaMemcpy");
    Stream& legacy = stream_of(nullptr);
    submit(legacy, copy_operation(to, from, bytes, kind));
    if (kind_of(from) != MemoryKind::pageable) Device::get().wait(lock, work_of(legacy));
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return call([&](Lock& lock) {
    Stream& stream = stream_of(handle);
    const bool waits = kind_of(to) == MemoryKind::pageable;
    if (stream.capture && (waits || kind_of(from) == MemoryKind::pageable)) {
      expect_no_capture("a copy of memory that is not pinned");
    }
    submit(stream, copy_operation(to, from, bytes, kind));
    if (waits) Device::get().wait(lock, work_of(stream));
  });
}

// ---- streams
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Lock&) {
    if (flags != cudaStreamNonBlocking) {
      throw Refused(cudaErrorNotSupported, "a stream that waits for the legacy default stream");
    }
    *stream = reinterpret_cast<cudaStream_t>(make_stream());
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&](Lock&) {
    if (!stream) throw Refused(cudaErrorInvalidResourceHandle, "the legacy default stream is destroyed");
    destroy_stream(&stream_of(stream));
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call([&](Lock& lock) {
    Stream& stream = stream_of(handle);
    expect_not_capturing(stream, "cudaStreamSynchronize");
    expect_no_capture("cudaStreamSynchronize");
    Device::get().wait(lock, work_of(stream));
  });
}

// ---- captures and graphs
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&](Lock&) { begin_capture(stream_of(stream), mode); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return call([&](Lock&) { *graph = reinterpret_cast<cudaGraph_t>(end_capture(stream_of(stream)).release()); });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return call([&](Lock&) {
    expect_no_capture("cudaGraphInstantiate");
    if (flags != 0) throw Refused(cudaErrorInvalidValue, fmt::format("cudaGraphInstantiate with flags {:#x}", flags));
    if (!graph) throw Refused(cudaErrorInvalidValue, "no graph");
    const char* const full = std::getenv("FAKE_GPU_NO_GRAPH");
    if (full && std::atoi(full) == current_device) throw Refused(cudaErrorMemoryAllocation, "no memory for a graph");
    *executable = reinterpret_cast<cudaGraphExec_t>(new GraphExec{reinterpret_cast<Graph*>(graph)->nodes, nullptr});
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call([&](Lock&) { launch(*reinterpret_cast<GraphExec*>(graph), stream_of(stream)); });
}
// A graph gives what it holds back without the lock, which that may take.
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<GraphExec*>(graph);
  return cudaSuccess;
}
}
