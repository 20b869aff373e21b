// Batch norm with the ReLU that may follow it, by our own vector loops, in the format of the input. Threads work on
// tiles, one block of channels of one sample each; the sums are combined in the order of the samples, so that results
// do not depend on the number of threads. `saved` holds the shift, from which the gradient recomputes the ReLU's mask:
// neither the mask nor the output has to be kept.
#include <limits>

#include "backend/cpu/batch_norm_tiles.h"
#include "backend/cpu/kernels.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

class LaneKernel : public Kernel {
 public:
  LaneKernel(const Context& context, DType stored, size_t workspace_bytes)
      : lanes_(lane_kernels(stored)), threads_(context.threads), workspace_bytes_(workspace_bytes) {}
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return std::string(lanes_.name); }

 protected:
  const LaneKernels& lanes_;
  const int threads_;

 private:
  size_t workspace_bytes_;
};

class BatchNormKernel final : public LaneKernel {
 public:
  BatchNormKernel(const Context& context, const BatchNorm& op, Descs inputs, Descs outputs)
      : LaneKernel(context, inputs[0].dtype, Tiles(inputs[0]).count() * sizeof(MomentSums)),
        op_(op),
        x_(inputs[0]),
        y_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    auto* sums = static_cast<MomentSums*>(args.workspace);
    float *mean = output(args, 1), *var = output(args, 2);
    const float* shift = input(args, 2);
    const Parameters p{input(args, 1), shift, mean, var, op_.epsilon};
    in_two_passes(
        threads_, x_, [&](Range tiles) { find_moments(lanes_, x_, tiles, args.inputs[0], sums); },
        [&](Range blocks) { combine_moments(x_, blocks, sums, mean, var); },
        [&](Range tiles) { normalize_tiles(lanes_, tiles, x_, y_, p, op_.relu, args.inputs[0], args.outputs[0]); });
    if (op_.relu) std::copy_n(shift, x_.layout.channels, output(args, 3));
  }

 private:
  BatchNorm op_;
  Tiles x_, y_;
};

// Sums over this rank's samples, relative to the running mean.
class SyncBatchNormSumsKernel final : public LaneKernel {
 public:
  SyncBatchNormSumsKernel(const Context& context, Descs inputs)
      : LaneKernel(context, inputs[0].dtype, Tiles(inputs[0]).count() * sizeof(MomentSums)), x_(inputs[0]) {}

  void run(const KernelArgs& args) const override {
    auto* moments = static_cast<MomentSums*>(args.workspace);
    over_tiles(threads_, x_, [&](Range tiles) { find_moments(lanes_, x_, tiles, args.inputs[0], moments); });
    float* sums = output(args, 0);
    for (int64_t c = 0; c < x_.layout.channels; ++c) {
      const kernels::Moments<double> all = moments_of_channel(x_, moments, c);
      const double distance = all.mean - double{input(args, 1)[c]};
      sums[c] = static_cast<float>(all.count * distance);
      sums[x_.layout.channels + c] = static_cast<float>(all.m2 + all.count * distance * distance);
    }
  }

 private:
  Tiles x_;
};

class SyncBatchNormKernel final : public LaneKernel {
 public:
  SyncBatchNormKernel(const Context& context, const SyncBatchNorm& op, Descs inputs, Descs outputs)
      : LaneKernel(context, inputs[0].dtype, 0), op_(op), x_(inputs[0]), y_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    const float *shift = input(args, 2), *running_mean = input(args, 3), *sums = input(args, 4);
    float *mean = output(args, 1), *var = output(args, 2);
    const int64_t channels = x_.layout.channels;
    const auto values = static_cast<double>(op_.values);
    for (int64_t c = 0; c < channels; ++c) {
      const double distance = sums[c] / values, mean_square = sums[channels + c] / values;
      mean[c] = static_cast<float>(running_mean[c] + distance);
      var[c] = static_cast<float>(kernels::relu(mean_square - distance * distance));
    }
    const Parameters p{input(args, 1), shift, mean, var, op_.epsilon};
    over_tiles(threads_, x_, [&](Range tiles) {
      normalize_tiles(lanes_, tiles, x_, y_, p, op_.relu, args.inputs[0], args.outputs[0]);
    });
    if (op_.relu) std::copy_n(shift, channels, output(args, 3));
  }

 private:
  SyncBatchNorm op_;
  Tiles x_, y_;
};

// The common part of the gradient's kernels. Their inputs begin with x, dy, scale, mean, var, and saved, which is the
// shift.
class GradientKernel : public LaneKernel {
 protected:
  template <class Operation>
  GradientKernel(const Context& context, const Operation& op, Descs inputs, size_t workspace_bytes)
      : LaneKernel(context, inputs[0].dtype, workspace_bytes),
        epsilon_(op.epsilon),
        relu_(op.relu),
        x_(inputs[0]),
        dy_(inputs[1]),
        zeros_(x_.layout.channels, 0.0F) {}
  static size_t sums_bytes(Descs inputs) { return Tiles(inputs[0]).count() * sizeof(GradientSums); }

  // `sums` has one element per tile.
  void sum_gradients(const KernelArgs& args, Range tiles, GradientSums* sums) const {
    const Parameters p = parameters(args);
    for_each_tile(
        x_, tiles, [&](int64_t block) { return channels_of(x_, block, p); },
        [&](int64_t tile, const NormChannels& channels) {
          lanes_.gradient_sums(norm_tile(args, tile, channels), sums[tile]);
        });
  }

  void combine_sums(const KernelArgs& args, Range blocks, const GradientSums* sums, float* dscale,
                    float* dshift) const {
    combine_gradient_sums(x_, blocks, sums, parameters(args), dscale, dshift);
  }

  // The parameters' gradients over `values` values of each channel.
  struct BatchGradients {
    double values;
    const float *dscale, *dshift;
  };
  void write_dx(const KernelArgs& args, Range tiles, const BatchGradients& batch, const Tiles& to) const {
    const Parameters p = parameters(args);
    for_each_tile(
        x_, tiles,
        [&](int64_t block) { return gradient_channels_of(x_, block, p, batch.values, batch.dscale, batch.dshift); },
        [&](int64_t tile, const GradientChannels& channels) {
          lanes_.gradient(norm_tile(args, tile, channels.norm), channels.gradient, to.in(args.outputs[0], tile));
        });
  }

  const Tiles& x() const { return x_; }

 private:
  Parameters parameters(const KernelArgs& args) const {
    const float* shift = relu_ ? input(args, 5) : zeros_.data();
    return {input(args, 2), shift, input(args, 3), input(args, 4), epsilon_};
  }
  NormTile norm_tile(const KernelArgs& args, int64_t tile, const NormChannels& channels) const {
    return {x_.shape(), x_.in(args.inputs[0], tile), dy_.in(args.inputs[1], tile), relu_, channels};
  }

  double epsilon_;
  bool relu_;
  Tiles x_, dy_;
  std::vector<float> zeros_;  // the shift without a ReLU, because only its mask depends on it
};

class BatchNormGradKernel final : public GradientKernel {
 public:
  BatchNormGradKernel(const Context& context, const BatchNormGrad& op, Descs inputs, Descs outputs)
      : GradientKernel(context, op, inputs, sums_bytes(inputs)), values_(x().values()), dx_(outputs[0]) {}
  // Running statistics do not depend on the batch, as if they were those of infinitely many values.
  BatchNormGradKernel(const Context& context, const BatchNormInferenceGrad& op, Descs inputs, Descs outputs)
      : GradientKernel(context, op, inputs, sums_bytes(inputs)),
        values_(std::numeric_limits<double>::infinity()),
        dx_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    float *dscale = output(args, 1), *dshift = output(args, 2);
    auto* sums = static_cast<GradientSums*>(args.workspace);
    in_two_passes(
        threads_, x(), [&](Range tiles) { sum_gradients(args, tiles, sums); },
        [&](Range blocks) { combine_sums(args, blocks, sums, dscale, dshift); },
        [&](Range tiles) {
          write_dx(args, tiles, {values_, dscale, dshift}, dx_);
        });
  }

 private:
  double values_;
  Tiles dx_;
};

class SyncBatchNormGradSumsKernel final : public GradientKernel {
 public:
  SyncBatchNormGradSumsKernel(const Context& context, const SyncBatchNormGradSums& op, Descs inputs)
      : GradientKernel(context, op, inputs, sums_bytes(inputs)) {}

  void run(const KernelArgs& args) const override {
    float *dscale = output(args, 0), *dshift = output(args, 1);
    auto* tile_sums = static_cast<GradientSums*>(args.workspace);
    over_tiles(threads_, x(), [&](Range tiles) { sum_gradients(args, tiles, tile_sums); });
    combine_sums(args, {0, x().layout.blocks}, tile_sums, dscale, dshift);
    const int64_t channels = x().layout.channels;
    std::copy_n(dscale, channels, output(args, 2));
    std::copy_n(dshift, channels, output(args, 2) + channels);
  }
};

class SyncBatchNormGradKernel final : public GradientKernel {
 public:
  SyncBatchNormGradKernel(const Context& context, const SyncBatchNormGrad& op, Descs inputs, Descs outputs)
      : GradientKernel(context, op, inputs, 0), values_(static_cast<double>(op.values)), dx_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    const float* sums = input(args, 6);
    const BatchGradients batch{values_, sums, sums + x().layout.channels};
    over_tiles(threads_, x(), [&](Range tiles) { write_dx(args, tiles, batch, dx_); });
  }

 private:
  double values_;
  Tiles dx_;
};

class BatchNormInferenceKernel final : public LaneKernel {
 public:
  BatchNormInferenceKernel(const Context& context, const BatchNormInference& op, Descs inputs, Descs outputs)
      : LaneKernel(context, inputs[0].dtype, 0), op_(op), x_(inputs[0]), y_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    const Parameters p{input(args, 1), input(args, 2), input(args, 3), input(args, 4), op_.epsilon};
    over_tiles(threads_, x_, [&](Range tiles) {
      normalize_tiles(lanes_, tiles, x_, y_, p, op_.relu, args.inputs[0], args.outputs[0]);
    });
  }

 private:
  BatchNormInference op_;
  Tiles x_, y_;
};

void expect_one_format(const Op& op, const TensorDesc& a, const TensorDesc& b) {
  require(a.format == b.format && (a.format == Format::plain() || a.format.kind == Format::Kind::blocked),
          "{} of {} and {}", op_name(op), a.to_string(), b.to_string());
}

}  // namespace

size_t saved_bytes(const Context&, const BatchNorm& op, Descs inputs) {
  return op.relu ? inputs[0].shape.c() * sizeof(float) : 0;
}

size_t saved_bytes(const Context&, const SyncBatchNorm& op, Descs inputs) {
  return op.relu ? inputs[0].shape.c() * sizeof(float) : 0;
}

std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormSums&, Descs inputs, Descs) {
  return std::make_unique<SyncBatchNormSumsKernel>(context, inputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNorm& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<SyncBatchNormKernel>(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormGradSums& op, Descs inputs, Descs) {
  expect_one_format(op, inputs[0], inputs[1]);
  return std::make_unique<SyncBatchNormGradSumsKernel>(context, op, inputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormGrad& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], inputs[1]);
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<SyncBatchNormGradKernel>(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNorm& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<BatchNormKernel>(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGrad& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], inputs[1]);
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<BatchNormGradKernel>(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInferenceGrad& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], inputs[1]);
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<BatchNormGradKernel>(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInference& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<BatchNormInferenceKernel>(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchMoments& op, Descs inputs, Descs) {
  return make_loop_kernel([channels = inputs[0].shape.elements(), op](const KernelArgs& args) {
    const auto samples = static_cast<float>(op.samples);
    const float *mean = input(args, 0), *var = input(args, 1), *running_mean = input(args, 2);
    float *first = output(args, 0), *second = output(args, 1);
    for (int64_t c = 0; c < channels; ++c) {
      kernels::moment_terms(samples, mean[c], var[c], running_mean[c], first[c], second[c]);
    }
  });
}

}  // namespace lockstep::cpu
