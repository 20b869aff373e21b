#include "backend/cuda/conv_timer.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/captured_work.h"
#include "backend/cuda/check.h"
#include "backend/cuda/memory.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::cuda {
namespace {

constexpr double kLaunchSeconds = 50e-6;  // more than the host needs to enqueue one run
// A short run is repeated in one captured graph, in which the host's time does not count.
constexpr double kShortSeconds = 0.5e-3;
constexpr int kRunsOfShort = 8, kMeasurements = 3;

// All memory of cudaMalloc is aligned so.
size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t tensor_bytes(const ConvProblem& p, int64_t id) {
  const auto image = [&](const Shape& shape) { return static_cast<size_t>(shape.elements()) * dtype_bytes(p.dtype); };
  if (id == kX) return image(p.x);
  if (id == kWeights) return image(p.weights);
  if (id == kY) return image(p.y);
  if (id == kGradient) return p.fusion == Fusion::norm_gradients ? image(p.x) : 0;
  return static_cast<size_t>(std::max(p.x.c(), p.y.c())) * sizeof(float);
}

}  // namespace

void fill_with_noise(void* memory, size_t bytes, cudaStream_t stream) {
  // Read as bfloat16, as float16, or in pairs as float32, each number is between 1/8 and 2 in size.
  std::vector<uint16_t> noise(size_t{1} << 20);
  uint32_t state = 1;
  for (uint16_t& x : noise) {
    state = state * 1664525 + 1013904223;
    x = static_cast<uint16_t>((state >> 16 & 0x81ff) | 0x3e00);
  }
  size_t filled = std::min(bytes, noise.size() * sizeof noise[0]);
  check(cudaMemcpyAsync(memory, noise.data(), filled, cudaMemcpyDefault, stream), "filling tensors");
  for (size_t more = 0; filled < bytes; filled += more) {
    more = std::min(filled, bytes - filled);
    check(cudaMemcpyAsync(static_cast<char*>(memory) + filled, memory, more, cudaMemcpyDefault, stream),
          "filling tensors");
  }
}

ConvTimer::ConvTimer(cudnnHandle_t handle, const ConvProblem& problem, size_t workspace_bytes) : handle_(handle) {
  for (int64_t id = kX; id < kAfterLast; ++id) at_[id + 1] = at_[id] + aligned(tensor_bytes(problem, id));
  memory_ = allocate_device(at_[kAfterLast] + workspace_bytes);
  fill_with_noise(memory_.data(), at_[kAfterLast], stream_.get());
  check(cudnnGetStream(handle, &stream_before_), "asking for cuDNN's stream");
  check(cudnnSetStream(handle, stream_.get()), "giving cuDNN a stream");
}

ConvTimer::~ConvTimer() {
  if (cudnnSetStream(handle_, stream_before_) != CUDNN_STATUS_SUCCESS) log_warning("cannot give cuDNN its stream back");
}

double ConvTimer::measure(const std::function<void()>& work) {
  stream_.record(begin_);
  work();
  stream_.record(end_);
  end_.wait();
  return end_.seconds_since(begin_);
}

std::optional<double> ConvTimer::seconds(const std::function<void()>& run, double best) {
  try {
    run();  // loads its kernels
    stream_.wait();
    const double once = measure(run);
    if (best > 0 && once > 2 * best + kLaunchSeconds) return once;
    const int runs = once < kShortSeconds ? kRunsOfShort : 1;
    const auto captured = capture(stream_, [&] {
      for (int i = 0; i < runs; ++i) run();
    });
    std::array<double, kMeasurements> times{};
    for (double& time : times) time = measure([&] { captured->launch(stream_); }) / runs;
    std::ranges::sort(times);
    return times[kMeasurements / 2];
  } catch (const Error&) {
    (void)cudaGetLastError();  // or the check of the next launch would report it
    stream_.wait();
    return std::nullopt;
  }
}

}  // namespace lockstep::cuda
