// Elements of the fake libraries' tensors, read and written as floats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::fake_gpu {

enum class Element : uint8_t { f32, bf16, f16 };

inline size_t bytes_of(Element element) { return element == Element::f32 ? 4 : 2; }

inline float read(Element element, const void* data, int64_t i) {
  if (element == Element::f32) return static_cast<const float*>(data)[i];
  if (element == Element::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return __half2float(static_cast<const __half*>(data)[i]);
}

inline void write(Element element, void* data, int64_t i, float value) {
  if (element == Element::f32) {
    static_cast<float*>(data)[i] = value;
  } else if (element == Element::bf16) {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
  } else {
    static_cast<__half*>(data)[i] = __float2half_rn(value);
  }
}

}  // namespace lockstep::fake_gpu
