// The narrow interface between the graph and whatever computes: one Backend a process, which turns operations at
// fixed shapes into Kernels. It does not grow with the list of operations.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A queue of work in order. On a CPU every kernel has finished when run() returns and wait() has nothing to do.
// Used by the thread that runs the step; must outlive what was enqueued on it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void wait() = 0;  // blocks the host until all enqueued work is done; throws what the device reports
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
  // What serves it, for explain and for the test that nothing falls to a slow path ("jit:avx512_core", "loops").
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

// How the backend wants an operation's tensors to lie. Elementwise operations take what their input has.
struct FormatChoice {
  std::vector<Format> inputs;
  std::vector<Format> outputs;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // Formats for `op`, given its inputs as they lie now and its outputs as inferred. The pipeline inserts a Reorder
  // wherever an input lies otherwise. Parameters, labels and sample weights always arrive in plain format.
  virtual FormatChoice choose_formats(const Op& op, std::span<const TensorDesc> inputs,
                                      std::span<const TensorDesc> outputs) const = 0;
  // Size of the operation's `saved` output (ops.h) for these inputs, in the formats chosen; 0 where it has none.
  virtual size_t saved_bytes(const Op& op, std::span<const TensorDesc> inputs) const = 0;
  // Memory that a tensor takes, opaque formats included.
  virtual size_t storage_bytes(const TensorDesc& desc) const = 0;
  // Throws Error(config) when the backend cannot run the operation (an element type it does not have, say).
  virtual std::unique_ptr<Kernel> compile(const Op& op, std::span<const TensorDesc> inputs,
                                          std::span<const TensorDesc> outputs) const = 0;
  // Kernels of the update, over flat arenas (see update.h).
  virtual std::unique_ptr<Kernel> compile(const struct UpdateOp& op) const = 0;

  virtual Buffer allocate(size_t bytes) const = 0;  // zeroed
  // Enqueues a copy between host memory and this backend's memory, either way (on a CPU: memcpy).
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) const = 0;
  virtual std::unique_ptr<Stream> make_stream() const = 0;
};

struct BackendOptions {
  int threads = 1;  // of the compute pool
};

// The backends by name ("reference", "cpu"), in the order `auto` tries them. Throws Error(config) on another name.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options);
std::span<const std::string_view> backend_names();

}  // namespace lockstep
