// The narrow interface between the graph and the code that computes. Each process has one Backend, which compiles
// operations of fixed shapes into Kernels. The interface does not grow with the list of operations.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A point in the work of a stream, marked by Stream::record. One that was never recorded counts as passed. Any thread
// may query it. A wait refers to the last record before it, so an event may be recorded again at once.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool passed() const = 0;  // whether the work before the last record has finished; throws errors of the device
  virtual void wait() const = 0;    // blocks the host until it has passed
  // Seconds between two events of make_timed_event() that have passed: the stream's time, not the host's.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// A queue of work that runs in order; several streams run concurrently. On a CPU every kernel has finished when run()
// returns, so there is nothing to wait for. Used by one thread at a time; must outlive its enqueued work.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void wait() = 0;  // blocks the host until all enqueued work is done; throws errors of the device
  virtual void record(Event& event) = 0;
  virtual void wait_for(const Event& event) = 0;  // later work of this stream starts after the event; returns at once
  // The handle under which a device library knows this stream (cudaStream_t); null on a CPU.
  virtual void* native() const { return nullptr; }
};

struct KernelArgs {
  Stream& stream;
  std::span<void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;  // workspace_bytes() of scratch memory, contents undefined before and after
};

// One operation at fixed shapes and formats. Immutable; holds no tensor memory; run() only enqueues and neither
// allocates nor blocks. May be run from one thread at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const KernelArgs& args) const = 0;
  virtual size_t workspace_bytes() const { return 0; }
  // The name that explain prints ("jit:avx512_core", "loops"). A test uses it to check that no kernel takes a slow
  // path.
  virtual std::string implementation() const = 0;
};

// Memory of the backend, 64-byte aligned; freed with it, so a Buffer must not outlive its Backend.
class Buffer {
 public:
  using Deleter = void (*)(void* data, size_t bytes) noexcept;
  Buffer() = default;
  Buffer(void* data, size_t bytes, Deleter free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_) free_(data_, bytes_);
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter free_ = nullptr;
};

// Captured work, which can be enqueued as a whole any number of times.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void launch(Stream& stream) const = 0;  // the stream it was captured on
};

// The formats that an operation's tensors must have. Elementwise operations keep that of their input.
struct FormatChoice {
  std::vector<Format> inputs;
  std::vector<Format> outputs;
};

class PlanTuning;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // Returns the formats for `op`, given the present formats of its inputs and its outputs as inferred. The pipeline
  // inserts a Reorder wherever an input has another format. Parameters, labels and sample weights always arrive in
  // plain format.
  virtual FormatChoice choose_formats(const Op& op, std::span<const TensorDesc> inputs,
                                      std::span<const TensorDesc> outputs) const = 0;
  // Whether the operation can read this input, or write its first output, if that is a channel slice of a larger tensor
  // (TensorDesc::parent_channels).
  virtual bool reads_slice(const Op&, size_t /*input*/) const { return false; }
  virtual bool writes_slice(const Op&) const { return false; }
  // Whether recomputing a normalization in the backward pass costs little compared with the memory that it saves.
  virtual bool recomputes() const { return false; }
  // Whether the backend has this operation for these shapes and types, in the formats that it would choose. Operations
  // that fuse layers (see conv2d.h) are optional.
  virtual bool can(const Op&, std::span<const TensorDesc> /*inputs*/, std::span<const TensorDesc> /*outputs*/) const {
    return false;
  }
  // Size of the operation's `saved` output (ops.h) for these inputs, in the formats chosen; 0 if it has none.
  virtual size_t saved_bytes(const Op& op, std::span<const TensorDesc> inputs) const = 0;
  // Memory that a tensor takes, opaque formats included.
  virtual size_t storage_bytes(const TensorDesc& desc) const = 0;
  // Throws Error(config) when the backend cannot run the operation, for example because it lacks the element type.
  virtual std::unique_ptr<Kernel> compile(const Op& op, std::span<const TensorDesc> inputs,
                                          std::span<const TensorDesc> outputs) const = 0;
  // Null if compile() has no choice of plans (see plan_tuning.h).
  virtual PlanTuning* plan_tuning() { return nullptr; }
  // Kernels of the update, over flat arenas (see update.h).
  virtual std::unique_ptr<Kernel> compile(const struct UpdateOp& op) const = 0;

  virtual Buffer allocate(size_t bytes) const = 0;  // zeroed
  // Zeroed, pinned memory of the host: a device reads and writes it directly, so that copies run asynchronously.
  virtual Buffer allocate_pinned(size_t bytes) const = 0;
  // Whether the host may read and write memory from allocate().
  virtual bool host_addressable() const = 0;
  // Enqueues a copy between host memory and this backend's memory, either way, or within it (on a CPU: memcpy). Host
  // memory that is not pinned may be copied before this returns.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) const = 0;
  virtual std::unique_ptr<Stream> make_stream() const = 0;
  virtual std::unique_ptr<Event> make_event() const = 0;
  virtual std::unique_ptr<Event> make_timed_event() const = 0;  // keeps the time at which it passed
  // Calls `enqueue` and captures its work instead of running it: on `stream`, and on streams that wait for `stream` and
  // for which `stream` waits in the end. Every launch runs the same kernels and copies on the same addresses, at the
  // cost of one call. The host must not wait for these streams during the capture. Null if the backend cannot capture.
  virtual std::unique_ptr<CapturedWork> capture(Stream&, const std::function<void()>& /*enqueue*/) const {
    return nullptr;
  }
};

struct BackendOptions {
  int threads = 1;       // of the compute pool
  int device = 0;        // which of the GPUs that this process sees
  bool tf32 = false;     // GPU: float32 products may round their factors to 10 bits of mantissa
  bool winograd = true;  // CPU: Winograd's method, for convolutions of stride 1 where it is faster
};

// The backends by name ("reference", "cpu", "cuda"). Throws Error(config) on another name, and when the backend cannot
// be used here.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options);
// The backends that this process can use, the fastest first.
std::span<const std::string_view> backend_names();

// Why this process cannot use a GPU ("no NVIDIA driver: ..."); empty when it can. The driver is asked once, without
// opening the CUDA libraries.
const std::string& gpu_unavailable_reason();
// The UUIDs of the GPUs that this process sees, in the order of BackendOptions::device; none when it can use none.
std::vector<std::string> gpu_ids();

}  // namespace lockstep
