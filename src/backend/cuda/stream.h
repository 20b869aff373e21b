// CUDA streams and events behind the backend's interface.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <memory>
#include <type_traits>

#include "lockstep/backend/backend.h"
#include "lockstep/base/unique_handle.h"

namespace lockstep::cuda {

struct EventTraits {
  using type = cudaEvent_t;
  static type invalid() { return nullptr; }
  static void destroy(type event) noexcept;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(bool timed = false);
  bool passed() const override;
  void wait() const override;
  double seconds_since(const Event& earlier) const override;
  cudaEvent_t get() const { return event_.get(); }

 private:
  UniqueHandle<EventTraits> event_;
};

struct StreamTraits {
  using type = cudaStream_t;
  static type invalid() { return nullptr; }
  static void destroy(type stream) noexcept;
};
// Shared by the stream that runs plans and the planner that makes them.
using CudnnHandle = std::shared_ptr<std::remove_pointer_t<cudnnHandle_t>>;
CudnnHandle make_cudnn_handle();

struct CublasTraits {
  using type = cublasHandle_t;
  static type invalid() { return nullptr; }
  static void destroy(type handle) noexcept;
};

// A stream that does not wait for the legacy default stream, with the library handles that enqueue on it.
class CudaStream final : public Stream {
 public:
  // `cudnn`: to run on this stream; null: its own.
  explicit CudaStream(CudnnHandle cudnn = nullptr);
  void wait() override;
  void record(Event& event) override;
  void wait_for(const Event& event) override;
  void* native() const override { return stream_.get(); }

  cudaStream_t get() const { return stream_.get(); }
  // Created at first use, so that streams for copies have none; after that they allocate nothing.
  cudnnHandle_t cudnn();
  cublasHandle_t cublas();
  // kTickets counters. They are zero, and each kernel of this stream that uses them leaves them zero.
  unsigned* tickets();

 private:
  UniqueHandle<StreamTraits> stream_;
  CudnnHandle cudnn_;
  Buffer cublas_workspace_;
  UniqueHandle<CublasTraits> cublas_;
  Buffer tickets_;
};

// The stream of a kernel's arguments: all streams of the CUDA backend are CudaStreams.
inline CudaStream& stream_of(const KernelArgs& args) { return static_cast<CudaStream&>(args.stream); }

}  // namespace lockstep::cuda
