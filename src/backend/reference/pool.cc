// Max and average pooling and their gradients, one plane at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/compute.h"

namespace lockstep::reference {
namespace {

// The part of the window of one output that is inside the image.
struct Patch {
  int64_t h_begin, h_end, w_begin, w_end;

  Patch(const Window& window, const Shape& image, int64_t oh, int64_t ow) {
    const int64_t h = oh * window.stride_h - window.pad_h, w = ow * window.stride_w - window.pad_w;
    h_begin = std::max<int64_t>(h, 0);
    h_end = std::min(h + window.kernel_h, image.h());
    w_begin = std::max<int64_t>(w, 0);
    w_end = std::min(w + window.kernel_w, image.w());
  }
  int64_t elements() const { return std::max<int64_t>(h_end - h_begin, 0) * std::max<int64_t>(w_end - w_begin, 0); }

  // visit(position in the image plane), in row-major order.
  template <class Visit>
  void for_each(int64_t width, Visit&& visit) const {
    for (int64_t h = h_begin; h < h_end; ++h) {
      for (int64_t w = w_begin; w < w_end; ++w) visit(h * width + w);
    }
  }
};

// visit(plane of the image, plane of the outputs, number of the output in it, its patch); one thread works on a plane.
template <class Visit>
void for_each_output(const Window& window, const Shape& image, const Shape& out, int threads, Visit&& visit) {
#pragma omp parallel for num_threads(threads)
  for (int64_t plane = 0; plane < image.n() * image.c(); ++plane) {
    for (int64_t oh = 0; oh < out.h(); ++oh) {
      for (int64_t ow = 0; ow < out.w(); ++ow) {
        visit(plane * image.h() * image.w(), plane * out.h() * out.w() + oh * out.w() + ow,
              Patch(window, image, oh, ow));
      }
    }
  }
}

template <class Avg>
double divisor(const Avg& op, const Patch& patch) {
  return static_cast<double>(op.count_include_pad ? op.window.kernel_h * op.window.kernel_w : patch.elements());
}

constexpr int32_t kNothing = -1;  // saved for a window that is entirely in the padding

// Writes the gradient of a max pool's input, from the inputs of a call that are the gradient of its output and its
// saved positions.
template <class T>
std::vector<T> max_pool_gradient(const MaxPoolGrad& op, const Call<T>& call, size_t dy, size_t saved) {
  std::vector<T> dx(static_cast<size_t>(op.input.elements()));
  void* const inputs[] = {call.args.inputs[dy], call.args.inputs[saved]};
  void* const outputs[] = {dx.data()};
  const KernelArgs args{call.args.stream, inputs, outputs};
  Reference<T>::compute(op, Call<T>{call.in.subspan(dy, 1), call.out, args, call.threads, 0});
  return dx;
}

}  // namespace

// The first maximum in row-major order wins, and a NaN wins over all, as in PyTorch.
template <class T>
void Reference<T>::compute(const MaxPool& op, const Call<T>& call) {
  const int64_t width = call.in_shape(0).w();
  for_each_output(op.window, call.in_shape(0), call.out_shape(0), call.threads,
                  [&](int64_t plane, int64_t o, const Patch& patch) {
                    const T* x = call.input(0) + plane;
                    T best = -std::numeric_limits<T>::infinity();
                    int32_t position = kNothing;
                    patch.for_each(width, [&](int64_t i) {
                      if (position != kNothing && !(x[i] > best) && !std::isnan(x[i])) return;
                      best = x[i];
                      position = static_cast<int32_t>(i);
                    });
                    call.output(0)[o] = best;
                    call.template output<int32_t>(1)[o] = position;
                  });
}

template <class T>
void Reference<T>::compute(const MaxPoolGrad& op, const Call<T>& call) {
  std::fill_n(call.output(0), op.input.elements(), T{0});
  for_each_output(op.window, op.input, call.in_shape(0), call.threads, [&](int64_t plane, int64_t o, const Patch&) {
    const int32_t position = call.template input<int32_t>(1)[o];
    if (position != kNothing) call.output(0)[plane + position] += call.input(0)[o];
  });
}

template <class T>
void Reference<T>::compute(const AvgPool& op, const Call<T>& call) {
  const int64_t width = call.in_shape(0).w();
  for_each_output(op.window, call.in_shape(0), call.out_shape(0), call.threads,
                  [&](int64_t plane, int64_t o, const Patch& patch) {
                    double sum = 0;
                    patch.for_each(width, [&](int64_t i) { sum += call.input(0)[plane + i]; });
                    call.output(0)[o] = static_cast<T>(sum / divisor(op, patch));
                  });
}

template <class T>
void Reference<T>::compute(const AvgPoolGrad& op, const Call<T>& call) {
  std::fill_n(call.output(0), op.input.elements(), T{0});
  for_each_output(op.window, op.input, call.in_shape(0), call.threads,
                  [&](int64_t plane, int64_t o, const Patch& patch) {
                    const T share = static_cast<T>(call.input(0)[o] / divisor(op, patch));
                    patch.for_each(op.input.w(), [&](int64_t i) { call.output(0)[plane + i] += share; });
                  });
}

// The output may be the memory of the first summand.
template <class T>
void Reference<T>::compute(const MaxPoolGradSum& op, const Call<T>& call) {
  const std::vector<T> dx = max_pool_gradient<T>({op.window, op.input}, call, 0, 1);
  for (size_t i = 0; i < dx.size(); ++i) {
    double sum = dx[i];
    for (size_t k = 2; k < call.in.size(); ++k) sum += call.input(k)[i];
    call.output(0)[i] = static_cast<T>(sum);
  }
}

template <class T>
void Reference<T>::compute(const BatchNormMaxPool& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const T *x = call.input(0), *shift = call.input(1), *mean = call.input(2), *factor = call.input(3);
  std::vector<T> image(static_cast<size_t>(shape.elements()));
  for (int64_t c = 0; c < shape.c(); ++c) {
    Channel(shape, c).for_each([&](int64_t i) {
      const double value = (x[i] - double{mean[c]}) * factor[c] + shift[c];
      image[static_cast<size_t>(i)] = static_cast<T>(value <= 0 ? 0 : value);
    });
  }
  with_image(call, 0, image.data(), [&](const Call<T>& inner) { compute(MaxPool{op.window}, inner); });
}

template <class T>
void Reference<T>::compute(const BatchNormMaxPoolGrad& op, const Call<T>& call) {
  std::vector<T> dz = max_pool_gradient<T>({op.window, call.in_shape(0)}, call, 1, 6);
  with_image(call, 1, dz.data(), [&](const Call<T>& inner) { compute(BatchNormOfSumsGrad{op.epsilon, true}, inner); });
}

template <class T>
void Reference<T>::compute(const AvgPoolStatistics& op, const Call<T>& call) {
  compute(AvgPool{op.window, op.count_include_pad}, call);
  std::vector<void*> inputs(call.args.inputs.begin(), call.args.inputs.end());
  inputs[0] = call.args.outputs[0];
  std::vector<TensorDesc> in(call.in.begin(), call.in.end());
  in[0] = call.out[0];
  const KernelArgs args{call.args.stream, inputs, call.args.outputs.subspan(1)};
  compute(BatchNormStatistics{op.epsilon, op.samples, op.to}, Call<T>{in, call.out.subspan(1), args, call.threads, 0});
}

template <class T>
void Reference<T>::compute(const BatchNormMaxPoolGradOfSums& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  std::vector<T> dz = max_pool_gradient<T>({op.window, shape}, call, 1, 5);
  const double share = static_cast<double>(call.in_shape(1).elements()) / static_cast<double>(shape.elements());
  std::vector<T> by_y, constant;
  for (int64_t c = 0; c < shape.c(); ++c) {
    by_y.push_back(static_cast<T>(share * call.input(6)[c]));
    constant.push_back(static_cast<T>(share * call.input(7)[c]));
  }
  const auto& in = call.args.inputs;
  void* const inputs[] = {in[0], dz.data(), in[2], in[3], in[4], by_y.data(), constant.data()};
  const KernelArgs args{call.args.stream, inputs, call.args.outputs};
  compute(BatchNormGradOfSums{.relu = true}, Call<T>{call.in.first(1), call.out, args, call.threads, 0});
}

LOCKSTEP_REFERENCE_COMPUTE(BatchNormMaxPoolGradOfSums);
template <class T>
void Reference<T>::compute(const MaxPoolGradNormSums& op, const Call<T>& call) {
  std::vector<void*> inputs(call.args.inputs.begin(), call.args.inputs.end());
  inputs.erase(inputs.begin() + 2, inputs.begin() + 4);
  std::vector<TensorDesc> in(call.in.begin(), call.in.end());
  in.erase(in.begin() + 2, in.begin() + 4);
  const KernelArgs sum_args{call.args.stream, inputs, call.args.outputs};
  compute(MaxPoolGradSum{op.window, op.input}, Call<T>{in, call.out, sum_args, call.threads, 0});
  void* const summed[] = {call.args.inputs[2], call.args.outputs[0], call.args.inputs[3]};
  const KernelArgs args{call.args.stream, summed, call.args.outputs.subspan(1)};
  compute(BatchNormGradSums{}, Call<T>{call.in.subspan(2, 1), call.out.subspan(1), args, call.threads, 0});
}

LOCKSTEP_REFERENCE_COMPUTE(MaxPoolGradNormSums);
LOCKSTEP_REFERENCE_COMPUTE(AvgPoolStatistics);
LOCKSTEP_REFERENCE_COMPUTE(MaxPoolGradSum);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormMaxPool);
LOCKSTEP_REFERENCE_COMPUTE(BatchNormMaxPoolGrad);
LOCKSTEP_REFERENCE_COMPUTE(MaxPool);
LOCKSTEP_REFERENCE_COMPUTE(MaxPoolGrad);
LOCKSTEP_REFERENCE_COMPUTE(AvgPool);
LOCKSTEP_REFERENCE_COMPUTE(AvgPoolGrad);

}  // namespace lockstep::reference
