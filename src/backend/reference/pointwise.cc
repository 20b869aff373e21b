// Elementwise operations.
#include <algorithm>
#include <numeric>

#include "backend/dropout_mask.h"
#include "backend/kernels/functors.h"
#include "backend/reference/compute.h"
#include "lockstep/ops/pixels.h"

namespace lockstep::reference {
namespace {

// Scales each channel's distance from its mean.
template <class T>
void change_contrast(T factor, int64_t pixels, T* image) {
  for (T* plane = image; plane < image + 3 * pixels; plane += pixels) {
    const T mean = static_cast<T>(std::accumulate(plane, plane + pixels, 0.0) / static_cast<double>(pixels));
    std::transform(plane, plane + pixels, plane, [&](T value) { return (value - mean) * factor + mean; });
  }
}

template <class T>
void distort(const ColorDistortion& color, int64_t pixels, T* image) {
  for (int64_t i = 0; i < 3 * pixels; ++i) image[i] = image[i] / T(255) + color.brightness;
  if (color.contrast_first != 0) change_contrast<T>(color.contrast, pixels, image);
  for (int64_t i = 0; i < pixels; ++i) {
    change_saturation_and_hue<T>(color.saturation, T(6) * color.hue, image[i], image[pixels + i],
                                 image[2 * pixels + i]);
  }
  if (color.contrast_first == 0) change_contrast<T>(color.contrast, pixels, image);
  for (int64_t i = 0; i < 3 * pixels; ++i) image[i] = std::clamp<T>(image[i], 0, 1);
}

}  // namespace

template <class T>
void Reference<T>::compute(const Relu& op, const Call<T>& call) {
  const T* x = call.input(0);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    call.output(0)[i] = op.six ? kernels::relu6(x[i]) : kernels::relu(x[i]);
  }
}

template <class T>
void Reference<T>::compute(const ReluGrad& op, const Call<T>& call) {
  const T *y = call.input(0), *dy = call.input(1);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    call.output(0)[i] = op.six ? kernels::relu6_gradient(y[i], dy[i]) : kernels::relu_gradient(y[i], dy[i]);
  }
}

// The output may be the memory of the first summand.
template <class T>
void Reference<T>::compute(const Add&, const Call<T>& call) {
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < call.in.size(); ++k) sum += call.input(k)[i];
    call.output(0)[i] = static_cast<T>(sum);
  }
}

template <class T>
void Reference<T>::compute(const Dropout& op, const Call<T>& call) {
  const DropoutMask mask(op, std::span<const int32_t, 4>(call.template input<int32_t>(1), 4));
  const double factor = 1 / (1 - op.rate);
  const int64_t batch = call.in_shape(0).n(), elements = call.in_shape(0).elements() / batch;
  for (int64_t n = 0; n < batch; ++n) {
    const uint64_t first = mask.counter(n, elements);
    const T* x = call.input(0) + n * elements;
    T* y = call.output(0) + n * elements;
    for (int64_t i = 0; i < elements; ++i) {
      y[i] = mask.keeps(first + static_cast<uint64_t>(i)) ? static_cast<T>(x[i] * factor) : T{0};
    }
  }
}

template <class T>
void Reference<T>::compute(const PreparePixels& op, const Call<T>& call) {
  const Shape& y = call.out_shape(0);
  const int64_t pixels = y.h() * y.w();
  for (int64_t n = 0; n < y.n(); ++n) {
    const auto change = op.changes ? call.template input<ImageChanges>(1)[n] : ImageChanges{};
    const uint8_t* const from = call.template input<uint8_t>(0) + n * 3 * pixels;
    T* const image = call.output(0) + n * 3 * pixels;
    for (int64_t i = 0; i < pixels; ++i) {
      const int64_t x = i % y.w(), at = change.mirrored != 0 ? i - x + y.w() - 1 - x : i;
      for (int64_t c = 0; c < 3; ++c) image[c * pixels + i] = from[3 * at + c];
    }
    if (op.distort) distort(change.color, pixels, image);
    for (int64_t i = 0; i < 3 * pixels; ++i) image[i] = image[i] * op.scale[i / pixels] + op.shift[i / pixels];
  }
}

LOCKSTEP_REFERENCE_COMPUTE(Relu);
LOCKSTEP_REFERENCE_COMPUTE(ReluGrad);
LOCKSTEP_REFERENCE_COMPUTE(Add);
LOCKSTEP_REFERENCE_COMPUTE(Dropout);
LOCKSTEP_REFERENCE_COMPUTE(PreparePixels);

}  // namespace lockstep::reference
