// The common parts of all kernels of the CPU backend: the library's engine and stream, the threads, and the translation
// between the project's formats and the library's layouts.
#pragma once

#include <omp.h>

#include <mutex>
#include <span>
#include <vector>

#include "backend/cpu/dnnl_adapter.h"
#include "lockstep/backend/backend.h"

namespace lockstep::cpu {

using Descs = std::span<const TensorDesc>;

// The layouts behind Format::opaque(id), numbered by equality. Thread-safe.
class OpaqueFormats {
 public:
  Format format_of(const MemoryDesc& desc);
  MemoryDesc desc_of(Format format) const;

 private:
  mutable std::mutex mutex_;
  std::vector<MemoryDesc> descs_;  // index = id
};

// Owned by the backend, which outlives its kernels.
struct Context {
  explicit Context(const BackendOptions& options) : threads(options.threads), winograd(options.winograd) {}

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  int threads;
  bool winograd;
  Format blocked = Format::blocked(channel_block());  // the format in which the library's kernels are fastest
  mutable OpaqueFormats opaque;

  // Weights of several groups have one dimension more, [groups,O/groups,I/groups,kh,kw].
  MemoryDesc memory_desc(const TensorDesc& desc, int64_t groups = 1) const;
  // The tensor in format `any`, for which the library chooses a layout.
  static MemoryDesc any_desc(const TensorDesc& desc, int64_t groups = 1);
  // The format of a layout that the library chose for a tensor: plain or opaque.
  Format format_of(const MemoryDesc& layout, TensorDesc desc, int64_t groups = 1) const;
};

// During its lifetime, OpenMP, and so the library, uses exactly `threads` threads when called by the thread that made
// it: the library divides work by this number both when it describes and when it runs a primitive.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ThreadScope() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::cpu
