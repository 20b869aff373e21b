// Kernels whose launches are wrong, for orders_test.cc: translated as the backend's are.
#include "test/backend/cuda_on_host/planted_faults.h"

namespace lockstep::test {
namespace {

constexpr int kOwnFloats = 10 << 10;  // 40 of the 48 KiB that a block may have

__global__ void __launch_bounds__(kBound) bounded(unsigned* threads) { ++*threads; }

template <int kTimes>
__global__ void __launch_bounds__(kTimes* kBound, 1) template_bounded(unsigned* threads) {
  ++*threads;
}

__global__ void sharing(float* result) {
  extern __shared__ float dynamic[];
  __shared__ float own[kOwnFloats];
  own[0] = dynamic[0] = 1;
  *result = own[0] + dynamic[0];
}

}  // namespace

void launch_bounded(unsigned block, unsigned* threads) { bounded<<<1, block, 0, nullptr>>>(threads); }

void launch_template_bounded(unsigned block, unsigned* threads) {
  template_bounded<2><<<1, block, 0, nullptr>>>(threads);
}

void launch_sharing(size_t dynamic_bytes, float* result) { sharing<<<1, 1, dynamic_bytes, nullptr>>>(result); }

}  // namespace lockstep::test
