// Average pooling by our own vector loops, in blocks of channels: it reads and writes slices, which the library's does
// not.
#include "backend/cpu/kernels.h"
#include "backend/cpu/lanes/lane_kernels.h"
#include "backend/cpu/loops.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

// Where the windows lie along one axis.
struct WindowAxis {
  int64_t kernel, stride, pad;
  int64_t inputs, outputs;  // places
  bool count_include_pad;

  int64_t first_input(int64_t output) const { return std::max<int64_t>(0, output * stride - pad); }
  int64_t end_input(int64_t output) const { return std::min(inputs, output * stride - pad + kernel); }
  float weight(int64_t output) const {
    const int64_t places = count_include_pad ? kernel : end_input(output) - first_input(output);
    return 1 / static_cast<float>(places);
  }
};

// A PoolAxis with its memory.
class AxisTable {
 public:
  AxisTable(const WindowAxis& axis, bool gradient)
      : written_(gradient ? axis.inputs : axis.outputs), read_(gradient ? axis.outputs : axis.inputs) {
    for (int64_t o = 0; o < axis.outputs; ++o) weight_.push_back(axis.weight(o));
    begin_.assign(static_cast<size_t>(written_), gradient ? static_cast<int32_t>(axis.outputs) : 0);
    end_.assign(static_cast<size_t>(written_), 0);
    for (int64_t o = 0; o < axis.outputs; ++o) {
      const auto place = static_cast<int32_t>(o);
      if (!gradient) {
        begin_[static_cast<size_t>(o)] = static_cast<int32_t>(axis.first_input(o));
        end_[static_cast<size_t>(o)] = static_cast<int32_t>(axis.end_input(o));
        continue;
      }
      for (int64_t i = axis.first_input(o); i < axis.end_input(o); ++i) {  // windows that see an input are neighbours
        begin_[static_cast<size_t>(i)] = std::min(begin_[static_cast<size_t>(i)], place);
        end_[static_cast<size_t>(i)] = place + 1;
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
      : lanes_(lane_kernels()),
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
    const PoolRun pool{static_cast<int>(from_.block), h_.view(), w_.view(), gradient_};
    parallel_ranges(threads_, from_.samples * from_.blocks, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const int64_t n = i / from_.blocks, c = i % from_.blocks * from_.block;
        lanes_.average_pool(pool, input(args, 0) + from_.offset(n, c, 0), output(args, 0) + to_.offset(n, c, 0));
      }
    });
  }
  std::string implementation() const override { return std::string(lanes_.name); }

 private:
  const LaneKernels& lanes_;
  int threads_;
  bool gradient_;
  ChannelLayout from_, to_;
  AxisTable h_, w_;
};

}  // namespace

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
