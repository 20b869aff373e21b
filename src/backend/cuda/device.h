// What kernels are built from: element types read and written as floats, packs of 16 bytes, grids. For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <type_traits>

#include "backend/cuda/rows.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

constexpr int kThreads = 256;     // of a block, unless a kernel says otherwise
constexpr int kMaxBlocks = 8192;  // of kernels that stride over their elements

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// kLanes neighbours, moved by one instruction where they fill 16 bytes.
template <class T, int kLanes>
struct alignas(sizeof(T) * kLanes) Pack {
  T lane[kLanes];
};

template <class T, int kLanes>
__device__ inline Pack<T, kLanes> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kLanes>*>(from);
}

// The compiler would split a pack of values that were computed one by one into stores of 4 bytes, so the store of 16
// bytes is an instruction that it cannot change.
template <class T, int kLanes>
__device__ inline void store_pack(const Pack<T, kLanes>& pack, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof pack == 16) {
    uint4 bits;
    memcpy(&bits, &pack, sizeof bits);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(bits.x),
                 "r"(bits.y), "r"(bits.z), "r"(bits.w)
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, kLanes>*>(to) = pack;
}

template <class T, int kLanes>
__device__ inline void unpack(const Pack<T, kLanes>& pack, float (&values)[kLanes]) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) values[i] = to_float(pack.lane[i]);
}

// Loads kLanes values, as many at a time as fill 16 bytes; memory is aligned for that.
template <int kLanes, class T>
__device__ inline void load(const T* from, float (&values)[kLanes]) {
  constexpr int kOnce = std::min<int>(kLanes, 16 / sizeof(T));
#pragma unroll
  for (int done = 0; done < kLanes; done += kOnce) {
    const auto pack = load_pack<T, kOnce>(from + done);
#pragma unroll
    for (int i = 0; i < kOnce; ++i) values[done + i] = to_float(pack.lane[i]);
  }
}

template <int kLanes, class T>
__device__ inline void store(const float (&values)[kLanes], T* to) {
  constexpr int kOnce = std::min<int>(kLanes, 16 / sizeof(T));
#pragma unroll
  for (int done = 0; done < kLanes; done += kOnce) {
    Pack<T, kOnce> pack;
#pragma unroll
    for (int i = 0; i < kOnce; ++i) pack.lane[i] = from_float<T>(values[done + i]);
    store_pack<T, kOnce>(pack, to + done);
  }
}

template <class T>
constexpr int kWidest = static_cast<int>(16 / sizeof(T));

__device__ inline int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_threads() { return int64_t{gridDim.x} * blockDim.x; }

inline unsigned blocks_for(int64_t items, int threads = kThreads) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + threads - 1) / threads, 1, kMaxBlocks));
}

// A part of an arena may begin at any element; packs need an aligned one.
inline bool begins_pack(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 16 == 0; }

// Calls launch(T{}) with the element type that dtype names; expect_element has refused all other types.
template <class Launch>
void with_element(DType dtype, const Launch& launch) {
  if (dtype == DType::f32) launch(float{});
  if (dtype == DType::bf16) launch(__nv_bfloat16{});
  if (dtype == DType::f16) launch(__half{});
}

// The number of elements by which packs can be formed in all of these images: it divides the channels, the distance
// from row to row, and the offset of the first element.
inline int64_t common_granule(DType dtype, int64_t channels, std::initializer_list<RowsIn> images) {
  int64_t granule = channels;
  for (const RowsIn& image : images) {
    const auto begin = reinterpret_cast<uintptr_t>(image.data) / dtype_bytes(dtype) % 16;
    granule = std::gcd(std::gcd(granule, image.row_elements), static_cast<int64_t>(begin));
  }
  return granule;
}

// Calls launch(T{}, lanes) with lanes an integral_constant: the widest pack that divides `granule`, or 1.
template <class Launch>
void with_packs(DType dtype, int64_t granule, const Launch& launch) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    if (granule % kWidest<T> == 0) {
      launch(element, std::integral_constant<int, kWidest<T>>{});
    } else {
      launch(element, std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace lockstep::cuda
