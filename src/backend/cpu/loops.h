// The parts of our own kernels: ranges for threads, and loops that are compiled once per instruction set.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/backend/backend.h"

// A function that is compiled for each of these levels of instruction sets; the highest that the processor has is
// chosen when the program starts. (Names of processors would match those of Intel alone.) Sanitizers are not
// initialized at that moment, so their builds have only the baseline. OpenMP moves the body of a parallel region out of
// such a function, so the region goes around the call.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_VECTORIZED __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LOCKSTEP_VECTORIZED
#endif

namespace lockstep::cpu {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// One of the parts into which work is divided.
struct Part {
  int64_t index = 0, parts = 1;
};
// The range of [0, count) that is this part; it begins and ends at multiples of `grain`, or at `count`.
inline Range range_of(const Part& part, int64_t count, int64_t grain) {
  const int64_t grains = (count + grain - 1) / grain;
  const auto cut = [&](int64_t i) { return std::min(count, grains * i / part.parts * grain); };
  return {cut(part.index), cut(part.index + 1)};
}

constexpr int64_t kElementGrain = 4096;  // elements; with fewer, a second thread does not pay off

// Calls body(range, thread) in each thread with a contiguous range of [0, count) that begins at a multiple of `grain`.
// The ranges depend only on count, grain and the number of threads.
template <class Body>
void parallel_ranges(int threads, int64_t count, int64_t grain, const Body& body) {
  if (threads == 1 || count <= grain) {
    body(Range{0, count}, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    const Range range = range_of({.index = thread, .parts = omp_get_num_threads()}, count, grain);
    if (range.size() > 0) body(range, thread);
  }
}

// A kernel from a callable that takes KernelArgs.
template <class Body>
class LoopKernel final : public Kernel {
 public:
  LoopKernel(Body body, size_t workspace_bytes) : body_(std::move(body)), workspace_bytes_(workspace_bytes) {}
  void run(const KernelArgs& args) const override { body_(args); }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return "loops"; }

 private:
  Body body_;
  size_t workspace_bytes_;
};

template <class Body>
std::unique_ptr<Kernel> make_loop_kernel(Body body, size_t workspace_bytes = 0) {
  return std::make_unique<LoopKernel<Body>>(std::move(body), workspace_bytes);
}

template <class T = float>
const T* input(const KernelArgs& args, size_t i) {
  return static_cast<const T*>(args.inputs[i]);
}
template <class T = float>
T* output(const KernelArgs& args, size_t i) {
  return static_cast<T*>(args.outputs[i]);
}

// The positions of the channels of a tensor, or of a slice of one: sample n, channel c, pixel p = h * W + w. A plain
// tensor has blocks of one channel.
struct ChannelLayout {
  int64_t samples, channels, pixels;
  int64_t block;            // channels side by side
  int64_t blocks;           // of a sample, the last one padded
  int64_t sample_elements;  // from one sample to the next, padding and the channels of others included

  explicit ChannelLayout(const TensorDesc& desc)
      : samples(desc.shape.n()),
        channels(desc.shape.c()),
        pixels(desc.shape.h() * desc.shape.w()),
        block(desc.format.kind == Format::Kind::blocked ? desc.format.id : 1),
        blocks((channels + block - 1) / block),
        sample_elements((std::max(channels, desc.parent_channels) + block - 1) / block * block * pixels) {}

  int64_t offset(int64_t n, int64_t c, int64_t p) const {
    return n * sample_elements + (c / block * pixels + p) * block + c % block;
  }
};

}  // namespace lockstep::cpu
