#include "backend/cuda/device.h"
#include "backend/cuda/launchers.h"
#include "backend/kernels/functors.h"

namespace lockstep::cuda {
namespace {

struct Rectify {
  __device__ float operator()(float x, float) const { return kernels::rectified(x); }
};
struct RectifyGradient {
  __device__ float operator()(float y, float dy) const { return kernels::rectified_gradient(y, dy); }
};
struct AddUp {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// out[i] = body(a[i], b[i]) in packs, the rest one by one; b may be null for bodies of one argument.
template <int kLanes, class T, class Body>
__global__ void map(int64_t count, Body body, const T* a, const T* b, T* out) {
  const int64_t packs = count / kLanes;
  for (int64_t i = thread_index(); i < packs; i += grid_threads()) {
    float left[kLanes], right[kLanes] = {};
    load<kLanes>(a + i * kLanes, left);
    if (b) load<kLanes>(b + i * kLanes, right);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) left[lane] = body(left[lane], right[lane]);
    store<kLanes>(left, out + i * kLanes);
  }
  const int64_t rest = packs * kLanes + thread_index();
  if (rest < count) out[rest] = from_float<T>(body(to_float(a[rest]), b ? to_float(b[rest]) : 0));
}

// Part of an arena may begin anywhere; then there are no packs.
bool begins_pack(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 16 == 0; }

template <class Body>
void launch_map(cudaStream_t stream, DType dtype, int64_t count, const void* a, const void* b, void* out) {
  const bool in_packs = begins_pack(a) && begins_pack(b) && begins_pack(out);
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    const auto *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
    auto* result = static_cast<T*>(out);
    if (in_packs) {
      constexpr int kLanes = kWidest<T>;
      map<kLanes><<<blocks_for(count / kLanes), kThreads, 0, stream>>>(count, Body{}, left, right, result);
    } else {
      map<1><<<blocks_for(count), kThreads, 0, stream>>>(count, Body{}, left, right, result);
    }
  });
}

template <class T>
__global__ void add_bias(Rows shape, const T* bias, T* y) {
  for (int64_t i = thread_index(); i < shape.elements(); i += grid_threads()) {
    y[i] = from_float<T>(to_float(y[i]) + to_float(bias[i % shape.channels]));
  }
}

}  // namespace

void launch_relu(cudaStream_t stream, DType dtype, int64_t count, const void* x, void* y) {
  launch_map<Rectify>(stream, dtype, count, x, nullptr, y);
}

void launch_relu_grad(cudaStream_t stream, DType dtype, int64_t count, const void* y, const void* dy, void* dx) {
  launch_map<RectifyGradient>(stream, dtype, count, y, dy, dx);
}

void launch_add(cudaStream_t stream, DType dtype, int64_t count, const void* a, const void* b, void* sum) {
  launch_map<AddUp>(stream, dtype, count, a, b, sum);
}

void launch_add_bias(cudaStream_t stream, DType dtype, Rows shape, const void* bias, void* y) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    add_bias<T>
        <<<blocks_for(shape.elements()), kThreads, 0, stream>>>(shape, static_cast<const T*>(bias), static_cast<T*>(y));
  });
}

}  // namespace lockstep::cuda
