// Pooling. oneDNN computes maximum pooling: the positions of the maxima are stored in the order of the format, so
// forward and gradient choose the format by the same rule, which looks only at the shapes. Our own vector loops compute
// average pooling, in blocks of channels: they read and write slices, which the library does not.
#include <algorithm>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/lanes/lane_kernels.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/primitive_kernel.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/half.h"

namespace lockstep::cpu {
namespace {

PoolingDescs pooling(const Context& context, const Window& window, const TensorDesc& src, const TensorDesc& dst) {
  return {context.memory_desc(src), context.memory_desc(dst), window};
}

Format preferred(const Context& context, const Window& window, TensorDesc src, TensorDesc dst) {
  for (const Format format : {context.blocked, Format::plain()}) {
    src.format = dst.format = format;
    const auto d = describe_pooling_backward(context.engine, pooling(context, window, src, dst));
    if (d && !is_reference(d)) return format;
  }
  return Format::plain();
}

PoolingForward::primitive_desc describe_forward(const Context& context, const MaxPool& op, const TensorDesc& x,
                                                const TensorDesc& y) {
  auto d = describe_pooling(context.engine, pooling(context, op.window, x, y));
  require(static_cast<bool>(d), "oneDNN has no {} for {}", op_name(op), x.to_string());
  return d;
}

LOCKSTEP_VECTORIZED bool holds_nan(const float* x, int64_t count) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = 0; i < count; ++i) found |= x[i] != x[i];
  return found != 0;
}

LOCKSTEP_VECTORIZED bool holds_nan(const uint16_t* x, int64_t count) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = 0; i < count; ++i) found |= (x[i] & 0x7fff) > 0x7f80;
  return found != 0;
}

// oneDNN's maximum ignores NaN, which would hide a diverged run. This kernel writes only NaN to a sample that contains
// one.
class MaxPoolKernel final : public Kernel {
 public:
  MaxPoolKernel(const Context& context, std::unique_ptr<Kernel> pool, const TensorDesc& x, const TensorDesc& y)
      : pool_(std::move(pool)),
        threads_(context.threads),
        bf16_(x.dtype == DType::bf16),
        samples_(x.shape.n()),
        read_(ChannelLayout(x).sample_elements),
        written_(ChannelLayout(y).sample_elements) {}

  void run(const KernelArgs& args) const override {
    pool_->run(args);
    if (bf16_) {
      pass_on(args, to_bf16(kNaN));
    } else {
      pass_on(args, kNaN);
    }
  }
  size_t workspace_bytes() const override { return pool_->workspace_bytes(); }
  std::string implementation() const override { return pool_->implementation(); }

 private:
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

  template <class T>
  void pass_on(const KernelArgs& args, T nan) const {
    parallel_ranges(threads_, samples_, 1, [&](Range range, int) {
      for (int64_t n = range.begin; n < range.end; ++n) {
        if (!holds_nan(input<T>(args, 0) + n * read_, read_)) continue;
        std::fill_n(output<T>(args, 0) + n * written_, written_, nan);
      }
    });
  }

  std::unique_ptr<Kernel> pool_;
  int threads_;
  bool bf16_;
  int64_t samples_, read_, written_;  // elements of a sample
};

// The positions of the windows along one axis.
struct WindowAxis {
  int64_t kernel, stride, pad;
  int64_t inputs, outputs;  // positions
  bool count_include_pad;

  int64_t first_input(int64_t output) const { return std::max<int64_t>(0, output * stride - pad); }
  int64_t end_input(int64_t output) const { return std::min(inputs, output * stride - pad + kernel); }
  float weight(int64_t output) const {
    const int64_t positions = count_include_pad ? kernel : end_input(output) - first_input(output);
    return 1 / static_cast<float>(positions);
  }
};

// A PoolAxis with its memory.
class AxisTable {
 public:
  AxisTable(const WindowAxis& axis, bool gradient)
      : written_(gradient ? axis.inputs : axis.outputs), read_(gradient ? axis.outputs : axis.inputs) {
    for (int64_t o = 0; o < axis.outputs; ++o) weight_.push_back(axis.weight(o));
    begin_.assign(written_, gradient ? static_cast<int32_t>(axis.outputs) : 0);
    end_.assign(written_, 0);
    for (int64_t o = 0; o < axis.outputs; ++o) {
      const auto position = static_cast<int32_t>(o);
      if (!gradient) {
        begin_[o] = static_cast<int32_t>(axis.first_input(o));
        end_[o] = static_cast<int32_t>(axis.end_input(o));
        continue;
      }
      for (int64_t i = axis.first_input(o); i < axis.end_input(o); ++i) {  // windows that see an input are neighbours
        begin_[i] = std::min(begin_[i], position);
        end_[i] = position + 1;
      }
    }
  }

  PoolAxis view() const { return {begin_.data(), end_.data(), weight_.data(), written_, read_}; }

 private:
  int64_t written_, read_;
  std::vector<int32_t> begin_, end_;
  std::vector<float> weight_;
};

struct PoolShapes {
  Window window;
  bool count_include_pad, gradient;
  const Shape &x, &y;  // of the forward pool
};

class AveragePoolKernel final : public Kernel {
 public:
  AveragePoolKernel(const Context& context, const PoolShapes& p, const TensorDesc& from, const TensorDesc& to)
      : lanes_(lane_kernels(from.dtype)),
        element_bytes_(dtype_bytes(from.dtype)),
        threads_(context.threads),
        gradient_(p.gradient),
        from_(from),
        to_(to),
        h_({p.window.kernel_h, p.window.stride_h, p.window.pad_h, p.x.h(), p.y.h(), p.count_include_pad}, p.gradient),
        w_({p.window.kernel_w, p.window.stride_w, p.window.pad_w, p.x.w(), p.y.w(), p.count_include_pad}, p.gradient) {
    require(from.format == context.blocked && to.format == context.blocked, "average pool of {} to {}",
            from.to_string(), to.to_string());
  }

  void run(const KernelArgs& args) const override {
    const PoolTile pool{static_cast<int>(from_.block), h_.view(), w_.view(), gradient_};
    parallel_ranges(threads_, from_.samples * from_.blocks, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const int64_t n = i / from_.blocks, c = i % from_.blocks * from_.block;
        lanes_.average_pool(pool, input<char>(args, 0) + from_.offset(n, c, 0) * element_bytes_,
                            output<char>(args, 0) + to_.offset(n, c, 0) * element_bytes_);
      }
    });
  }
  std::string implementation() const override { return std::string(lanes_.name); }

 private:
  const LaneKernels& lanes_;
  int64_t element_bytes_;
  int threads_;
  bool gradient_;
  ChannelLayout from_, to_;
  AxisTable h_, w_;
};

}  // namespace

FormatChoice choose_formats(const Context& context, const MaxPool& op, Descs inputs, Descs outputs) {
  return leading_in(preferred(context, op.window, inputs[0], outputs[0]), 1, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  return leading_in(preferred(context, op.window, outputs[0], inputs[0]), 1, inputs, outputs);
}

size_t saved_bytes(const Context& context, const MaxPool& op, Descs inputs) {
  TensorDesc y = infer(op, inputs)[0];
  y.format = inputs[0].format;
  return describe_forward(context, op, inputs[0], y).workspace_desc().get_size();
}

std::unique_ptr<Kernel> compile(const Context& context, const MaxPool& op, Descs inputs, Descs outputs) {
  const auto d = describe_forward(context, op, inputs[0], outputs[0]);
  auto pool = make_primitive_kernel<PoolingForward>(
      context, d,
      {.inputs = {{DNNL_ARG_SRC, d.src_desc()}},
       .outputs = {{DNNL_ARG_DST, d.dst_desc()}, {DNNL_ARG_WORKSPACE, d.workspace_desc()}}});
  return std::make_unique<MaxPoolKernel>(context, std::move(pool), inputs[0], outputs[0]);
}

std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  const auto d = describe_pooling_backward(context.engine, pooling(context, op.window, outputs[0], inputs[0]));
  require(static_cast<bool>(d), "oneDNN has no {} for {}", op_name(op), inputs[0].to_string());
  return make_primitive_kernel<PoolingBackward>(
      context, d,
      {.inputs = {{DNNL_ARG_DIFF_DST, d.diff_dst_desc()}, {DNNL_ARG_WORKSPACE, d.workspace_desc()}},
       .outputs = {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()}}});
}

FormatChoice choose_formats(const Context& context, const AvgPool&, Descs inputs, Descs outputs) {
  return leading_in(context.blocked, 1, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const AvgPoolGrad&, Descs inputs, Descs outputs) {
  return leading_in(context.blocked, 1, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const AvgPool& op, Descs inputs, Descs outputs) {
  const PoolShapes shapes{op.window, op.count_include_pad, false, inputs[0].shape, outputs[0].shape};
  return std::make_unique<AveragePoolKernel>(context, shapes, inputs[0], outputs[0]);
}

std::unique_ptr<Kernel> compile(const Context& context, const AvgPoolGrad& op, Descs inputs, Descs outputs) {
  const PoolShapes shapes{op.window, op.count_include_pad, true, op.input, inputs[0].shape};
  return std::make_unique<AveragePoolKernel>(context, shapes, inputs[0], outputs[0]);
}

}  // namespace lockstep::cpu
