#include "backend/cuda/local_response_norm.h"

#include "backend/cuda/device.h"

namespace lockstep::cuda {
namespace {

// Each row of channels has a line of threads, each block several lines. The row lies in shared memory, where each
// channel reads its neighbours.
struct Lines {
  int threads, lines;
  dim3 block() const { return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(lines)); }
};
Lines lines_for(int64_t channels) {
  const int threads = static_cast<int>(std::clamp<int64_t>((channels + 31) / 32 * 32, 32, kThreads));
  return {threads, kThreads / threads};
}

// sum of values over the window around channel c
__device__ float around(const float* values, int64_t c, const LrnLaunch& lrn) {
  const int64_t half = lrn.size / 2;
  float sum = 0;
  for (int64_t j = max(c - half, int64_t{0}); j <= min(c + half, lrn.shape.channels - 1); ++j) sum += values[j];
  return sum;
}

// All threads of a block go through the same number of rounds, since they meet at barriers.
template <class Body>
__device__ void for_each_line(const LrnLaunch& lrn, const Body& body) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < lrn.shape.rows; first += stride) {
    const int64_t row = first + threadIdx.y;
    body(row * lrn.shape.channels, row < lrn.shape.rows);
  }
}

template <class T>
__global__ void lrn_forward(LrnLaunch lrn, const T* x, T* y) {
  extern __shared__ float shared[];
  const int64_t channels = lrn.shape.channels;
  float* squares = shared + threadIdx.y * channels;
  for_each_line(lrn, [&](int64_t row, bool inside) {
    for (int64_t c = threadIdx.x; inside && c < channels; c += blockDim.x) {
      const float value = to_float(x[row + c]);
      squares[c] = value * value;
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; inside && c < channels; c += blockDim.x) {
      const float base = lrn.k + lrn.alpha_over_size * around(squares, c, lrn);
      y[row + c] = from_float<T>(to_float(x[row + c]) * powf(base, -lrn.beta));
    }
    __syncthreads();
  });
}

// With b the base of the power: dx_c = dy_c b_c^-beta - 2 beta alpha / size x_c sum over j around c of
// dy_j x_j b_j^(-beta - 1).
template <class T>
__global__ void lrn_backward(LrnLaunch lrn, const T* x, const T* dy, T* dx) {
  extern __shared__ float shared[];
  const int64_t channels = lrn.shape.channels;
  float* squares = shared + threadIdx.y * 2 * channels;
  float* terms = squares + channels;
  for_each_line(lrn, [&](int64_t row, bool inside) {
    for (int64_t c = threadIdx.x; inside && c < channels; c += blockDim.x) {
      const float value = to_float(x[row + c]);
      squares[c] = value * value;
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; inside && c < channels; c += blockDim.x) {
      const float base = lrn.k + lrn.alpha_over_size * around(squares, c, lrn);
      terms[c] = to_float(dy[row + c]) * to_float(x[row + c]) * powf(base, -lrn.beta - 1);
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; inside && c < channels; c += blockDim.x) {
      const float base = lrn.k + lrn.alpha_over_size * around(squares, c, lrn);
      const float own = to_float(dy[row + c]) * powf(base, -lrn.beta);
      const float others = 2 * lrn.beta * lrn.alpha_over_size * to_float(x[row + c]) * around(terms, c, lrn);
      dx[row + c] = from_float<T>(own - others);
    }
    __syncthreads();
  });
}

}  // namespace

void launch_lrn(cudaStream_t stream, DType dtype, const LrnLaunch& lrn, const void* x, void* y) {
  const Lines lines = lines_for(lrn.shape.channels);
  const size_t shared = lines.lines * lrn.shape.channels * sizeof(float);
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    lrn_forward<<<blocks_for(lrn.shape.rows, lines.lines), lines.block(), shared, stream>>>(
        lrn, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void launch_lrn_grad(cudaStream_t stream, DType dtype, const LrnLaunch& lrn, const void* x, const void* dy, void* dx) {
  const Lines lines = lines_for(lrn.shape.channels);
  const size_t shared = lines.lines * 2 * lrn.shape.channels * sizeof(float);
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    lrn_backward<<<blocks_for(lrn.shape.rows, lines.lines), lines.block(), shared, stream>>>(
        lrn, static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace lockstep::cuda
