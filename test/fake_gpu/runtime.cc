// The CUDA runtime of the fake device: what the plugin calls of streams, events, memory and graphs.
#include "test/fake_gpu/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/fake_gpu/device_count.h"
#include "test/fake_gpu/memory.h"

namespace lockstep::fake_gpu {
namespace {

constexpr size_t kTotalBytes = size_t{64} << 30;

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaError_t explained = cudaSuccess;  // what `reason` is about
thread_local std::string reason, text;
thread_local int current_device = 0;

Event& event_of(cudaEvent_t handle) {
  if (!handle) throw Refused(cudaErrorInvalidResourceHandle, "no event");
  return *reinterpret_cast<Event*>(handle);
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

// Which kernel of a capture on this device allocates memory, as a library may at its first use: FAKE_GPU_ALLOCATE=D:N
// plants that in the N-th one on device D. 0: none.
int allocating_kernel(int device) {
  const char* const script = std::getenv("FAKE_GPU_ALLOCATE");
  int at = 0, number = 0;
  if (!script || std::sscanf(script, "%d:%d", &at, &number) != 2 || at != device) return 0;
  return number;
}

// A copy reads and writes when it runs, but memory that is not pinned is read at the call.
Operation copy_operation(void* to, const void* from, size_t bytes) {
  Operation copy{.what = fmt::format("a copy of {} bytes", bytes), .run = nullptr};
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
    if (its_stream.capture && ++its_stream.capture->kernels == allocating_kernel(current_device)) {
      expect_no_capture(fmt::format("cudaMalloc by {}", shape.kernel));
    }
    submit(its_stream, {.what = shape.kernel, .run = [shape, kernel = std::move(kernel)] { emulate(shape, kernel); }});
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
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count())
    return remember(cudaErrorInvalidDevice, fmt::format("no device {}", device));
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
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return call([&](Lock&) {
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
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return call([&](Lock& lock) {
    expect_no_capture("cudaMemcpy");
    Stream& legacy = stream_of(nullptr);
    submit(legacy, copy_operation(to, from, bytes));
    if (kind_of(from) != MemoryKind::pageable) Device::get().wait(lock, work_of(legacy));
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t handle) {
  return call([&](Lock& lock) {
    Stream& stream = stream_of(handle);
    submit(stream, copy_operation(to, from, bytes));
    if (kind_of(to) == MemoryKind::pageable && !stream.capture) Device::get().wait(lock, work_of(stream));
  });
}

// ---- streams and events
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Lock&) {
    if (flags != cudaStreamNonBlocking) {
      throw Refused(cudaErrorNotSupported, "a stream that waits for the legacy default stream");
    }
    *stream = reinterpret_cast<cudaStream_t>(make_stream());
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&](Lock&) { destroy_stream(&stream_of(stream)); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call([&](Lock& lock) {
    Stream& stream = stream_of(handle);
    expect_not_capturing(stream, "cudaStreamSynchronize");
    expect_no_capture("cudaStreamSynchronize");
    Device::get().wait(lock, work_of(stream));
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call([&](Lock&) { wait_for(stream_of(stream), event_of(event)); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if ((flags & cudaEventDisableTiming) == 0) return cudaEventCreate(event);
  return call([&](Lock&) { *event = reinterpret_cast<cudaEvent_t>(new Event); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Lock&) { delete &event_of(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Lock&) {
    if (const auto reached = event_of(event).reached; reached && !stream_of(stream).capture) {
      submit(stream_of(stream), {.what = "an event's time", .run = [reached] { *reached = Device::get().seconds(); }});
    }
    record(stream_of(stream), event_of(event));
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Lock&) {
    expect_not_captured(event_of(event), "cudaEventQuery");
    expect_no_capture("cudaEventQuery");
    if (!Device::get().query(event_of(event).work)) throw Refused(cudaErrorNotReady, "not ready");
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Lock& lock) {
    expect_not_captured(event_of(event), "cudaEventSynchronize");
    expect_no_capture("cudaEventSynchronize");
    Device::get().wait(lock, event_of(event).work);
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
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return call([&](Lock&) {
    expect_no_capture("cudaGraphInstantiate");
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
