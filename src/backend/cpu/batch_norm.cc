// Batch norm with the ReLU that may follow it, by our own vector loops, in whatever format the input has. Runs of one
// channel block of one sample go to threads; what they find is combined in the order of the samples, so that results do
// not depend on the number of threads. `saved` holds the shift: with it the gradient finds the ReLU's mask again, which
// takes neither memory nor the output.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/lanes/lane_kernels.h"
#include "backend/cpu/loops.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

// The runs of a tensor, block after block, so that a thread's runs share their channels.
struct Runs {
  ChannelLayout layout;
  explicit Runs(const TensorDesc& desc) : layout(desc) {}

  int64_t count() const { return layout.blocks * layout.samples; }
  int64_t block_of(int64_t run) const { return run / layout.samples; }
  int64_t sample_of(int64_t run) const { return run % layout.samples; }
  int64_t offset(int64_t run) const { return layout.offset(sample_of(run), block_of(run) * layout.block, 0); }
  Run shape() const { return {layout.places, static_cast<int>(layout.block)}; }
  double values() const { return static_cast<double>(layout.samples * layout.places); }
  int64_t first_channel(int64_t block) const { return block * layout.block; }
  int lanes(int64_t block) const {
    return static_cast<int>(std::min(layout.block, layout.channels - first_channel(block)));
  }
};

// Calls body(run, what make(block) gave for its block) for every run of a range.
template <class Make, class Body>
void for_each_run(int threads, const Runs& runs, const Make& make, const Body& body) {
  parallel_ranges(threads, runs.count(), 1, [&](Range range, int) {
    for (int64_t run = range.begin; run < range.end;) {
      const int64_t block = runs.block_of(run);
      const int64_t end = std::min(range.end, (block + 1) * runs.layout.samples);
      const auto channels = make(block);
      for (; run < end; ++run) body(run, channels);
    }
  });
}

float inverse_deviation(float var, double epsilon) { return static_cast<float>(1 / std::sqrt(double{var} + epsilon)); }

struct Parameters {
  const float *scale, *shift, *mean, *var;
  double epsilon;
};

// Lanes of the padding get zeros, and so write zeros.
NormChannels channels_of(const Runs& runs, int64_t block, const Parameters& p) {
  NormChannels channels{};
  for (int i = 0; i < runs.lanes(block); ++i) {
    const int64_t c = runs.first_channel(block) + i;
    channels.mean.at[i] = p.mean[c];
    channels.factor.at[i] = p.scale[c] * inverse_deviation(p.var[c], p.epsilon);
    channels.shift.at[i] = p.shift[c];
  }
  return channels;
}

void find_moments(const LaneKernels& lanes, int threads, const Runs& runs, const float* x, MomentSums* sums) {
  parallel_ranges(threads, runs.count(), 1, [&](Range range, int) {
    for (int64_t run = range.begin; run < range.end; ++run) {
      lanes.moments(runs.shape(), x + runs.offset(run), sums[run]);
    }
  });
}

kernels::Moments<double> moments_of_channel(const Runs& runs, const MomentSums* sums, int64_t c) {
  const int64_t first = c / runs.layout.block * runs.layout.samples, lane = c % runs.layout.block;
  kernels::Moments<double> all;
  for (int64_t n = 0; n < runs.layout.samples; ++n) {
    const MomentSums& of = sums[first + n];
    all.add({static_cast<double>(runs.layout.places), of.mean.at[lane], of.squares.at[lane]});
  }
  return all;
}

void combine_moments(const Runs& runs, const MomentSums* sums, float* mean, float* var) {
  const auto places = static_cast<double>(runs.layout.places);
  for (int64_t block = 0; block < runs.layout.blocks; ++block) {
    MomentSums all = sums[block * runs.layout.samples];
    for (int64_t n = 1; n < runs.layout.samples; ++n) {
      const MomentSums& of = sums[block * runs.layout.samples + n];
      const kernels::MomentShare<double> share(static_cast<double>(n) * places, places);
      for (int i = 0; i < static_cast<int>(runs.layout.block); ++i) {
        share.add(of.mean.at[i], of.squares.at[i], all.mean.at[i], all.squares.at[i]);
      }
    }
    for (int i = 0; i < runs.lanes(block); ++i) {
      mean[runs.first_channel(block) + i] = static_cast<float>(all.mean.at[i]);
      var[runs.first_channel(block) + i] = static_cast<float>(all.squares.at[i] / runs.values());
    }
  }
}

void normalize_runs(const LaneKernels& lanes, int threads, const Runs& from, const Runs& to, const Parameters& p,
                    bool relu, const float* x, float* y) {
  for_each_run(
      threads, from, [&](int64_t block) { return channels_of(from, block, p); },
      [&](int64_t run, const NormChannels& channels) {
        lanes.normalize({.run = from.shape(), .x = x + from.offset(run), .relu = relu, .channels = channels},
                        y + to.offset(run));
      });
}

// The sums over the whole batch, in place of the gradients' two outputs.
void combine_gradient_sums(const Runs& runs, const GradientSums* sums, const Parameters& p, float* dscale,
                           float* dshift) {
  for (int64_t block = 0; block < runs.layout.blocks; ++block) {
    GradientSums all = sums[block * runs.layout.samples];
    for (int64_t n = 1; n < runs.layout.samples; ++n) {
      const GradientSums& of = sums[block * runs.layout.samples + n];
      for (int i = 0; i < static_cast<int>(runs.layout.block); ++i) {
        all.gradient.at[i] += of.gradient.at[i];
        all.product.at[i] += of.product.at[i];
      }
    }
    for (int i = 0; i < runs.lanes(block); ++i) {
      const int64_t c = runs.first_channel(block) + i;
      dscale[c] = static_cast<float>(all.product.at[i] * double{inverse_deviation(p.var[c], p.epsilon)});
      dshift[c] = static_cast<float>(all.gradient.at[i]);
    }
  }
}

struct GradientChannels {
  NormChannels norm;
  NormGradientChannels gradient;
};
// `values`: of a channel, in the batch that dscale and dshift are of.
GradientChannels gradient_channels_of(const Runs& runs, int64_t block, const Parameters& p, double values,
                                      const float* dscale, const float* dshift) {
  GradientChannels channels{channels_of(runs, block, p), {}};
  for (int i = 0; i < runs.lanes(block); ++i) {
    const int64_t c = runs.first_channel(block) + i;
    const double share = double{channels.norm.factor.at[i]} / values;
    channels.gradient.slope.at[i] =
        static_cast<float>(share * double{inverse_deviation(p.var[c], p.epsilon)} * double{dscale[c]});
    channels.gradient.offset.at[i] = static_cast<float>(share * double{dshift[c]});
  }
  return channels;
}

class LaneKernel : public Kernel {
 public:
  LaneKernel(const Context& context, size_t workspace_bytes)
      : lanes_(lane_kernels()), threads_(context.threads), workspace_bytes_(workspace_bytes) {}
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
      : LaneKernel(context, static_cast<size_t>(Runs(inputs[0]).count()) * sizeof(MomentSums)),
        op_(op),
        x_(inputs[0]),
        y_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    auto* sums = static_cast<MomentSums*>(args.workspace);
    float *mean = output(args, 1), *var = output(args, 2);
    const float* shift = input(args, 2);
    find_moments(lanes_, threads_, x_, input(args, 0), sums);
    combine_moments(x_, sums, mean, var);
    normalize_runs(lanes_, threads_, x_, y_, {input(args, 1), shift, mean, var, op_.epsilon}, op_.relu, input(args, 0),
                   output(args, 0));
    if (op_.relu) std::copy_n(shift, x_.layout.channels, output(args, 3));
  }

 private:
  BatchNorm op_;
  Runs x_, y_;
};

// Of this rank's samples alone, measured from the running mean.
class SyncBatchNormSumsKernel final : public LaneKernel {
 public:
  SyncBatchNormSumsKernel(const Context& context, Descs inputs)
      : LaneKernel(context, static_cast<size_t>(Runs(inputs[0]).count()) * sizeof(MomentSums)), x_(inputs[0]) {}

  void run(const KernelArgs& args) const override {
    auto* moments = static_cast<MomentSums*>(args.workspace);
    find_moments(lanes_, threads_, x_, input(args, 0), moments);
    float* sums = output(args, 0);
    for (int64_t c = 0; c < x_.layout.channels; ++c) {
      const kernels::Moments<double> all = moments_of_channel(x_, moments, c);
      const double distance = all.mean - double{input(args, 1)[c]};
      sums[c] = static_cast<float>(all.count * distance);
      sums[x_.layout.channels + c] = static_cast<float>(all.squares + all.count * distance * distance);
    }
  }

 private:
  Runs x_;
};

class SyncBatchNormKernel final : public LaneKernel {
 public:
  SyncBatchNormKernel(const Context& context, const SyncBatchNorm& op, Descs inputs, Descs outputs)
      : LaneKernel(context, 0), op_(op), x_(inputs[0]), y_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    const float *shift = input(args, 2), *running_mean = input(args, 3), *sums = input(args, 4);
    float *mean = output(args, 1), *var = output(args, 2);
    const int64_t channels = x_.layout.channels;
    const auto values = static_cast<double>(op_.values);
    for (int64_t c = 0; c < channels; ++c) {
      const double distance = sums[c] / values, squares = sums[channels + c] / values;
      mean[c] = static_cast<float>(running_mean[c] + distance);
      var[c] = static_cast<float>(kernels::rectified(squares - distance * distance));
    }
    normalize_runs(lanes_, threads_, x_, y_, {input(args, 1), shift, mean, var, op_.epsilon}, op_.relu, input(args, 0),
                   output(args, 0));
    if (op_.relu) std::copy_n(shift, channels, output(args, 3));
  }

 private:
  SyncBatchNorm op_;
  Runs x_, y_;
};

class BatchNormGradKernel final : public LaneKernel {
 public:
  BatchNormGradKernel(const Context& context, const BatchNormGrad& op, Descs inputs, Descs outputs)
      : LaneKernel(context, static_cast<size_t>(Runs(inputs[0]).count()) * sizeof(GradientSums)),
        op_(op),
        x_(inputs[0]),
        dy_(inputs[1]),
        dx_(outputs[0]),
        zeros_(static_cast<size_t>(x_.layout.channels), 0.0F) {}

  void run(const KernelArgs& args) const override {
    auto* sums = static_cast<GradientSums*>(args.workspace);
    const float *x = input(args, 0), *dy = input(args, 1);
    float *dscale = output(args, 1), *dshift = output(args, 2);
    const float* shift = op_.relu ? input(args, 5) : zeros_.data();
    const Parameters p{input(args, 2), shift, input(args, 3), input(args, 4), op_.epsilon};
    const auto norm_run = [&](int64_t run, const NormChannels& channels) {
      return NormRun{x_.shape(), x + x_.offset(run), dy + dy_.offset(run), op_.relu, channels};
    };
    for_each_run(
        threads_, x_, [&](int64_t block) { return channels_of(x_, block, p); },
        [&](int64_t run, const NormChannels& channels) { lanes_.gradient_sums(norm_run(run, channels), sums[run]); });
    combine_gradient_sums(x_, sums, p, dscale, dshift);
    for_each_run(
        threads_, x_, [&](int64_t block) { return gradient_channels_of(x_, block, p, x_.values(), dscale, dshift); },
        [&](int64_t run, const GradientChannels& channels) {
          lanes_.gradient(norm_run(run, channels.norm), channels.gradient, output(args, 0) + dx_.offset(run));
        });
  }

 private:
  BatchNormGrad op_;
  Runs x_, dy_, dx_;
  std::vector<float> zeros_;  // the shift where no ReLU asks for it
};

class SyncBatchNormGradSumsKernel final : public LaneKernel {
 public:
  SyncBatchNormGradSumsKernel(const Context& context, const SyncBatchNormGradSums& op, Descs inputs)
      : LaneKernel(context, static_cast<size_t>(Runs(inputs[0]).count()) * sizeof(GradientSums)),
        op_(op),
        x_(inputs[0]),
        dy_(inputs[1]),
        zeros_(static_cast<size_t>(x_.layout.channels), 0.0F) {}

  void run(const KernelArgs& args) const override {
    auto* sums = static_cast<GradientSums*>(args.workspace);
    const float *x = input(args, 0), *dy = input(args, 1);
    const float* shift = op_.relu ? input(args, 5) : zeros_.data();
    const Parameters p{input(args, 2), shift, input(args, 3), input(args, 4), op_.epsilon};
    for_each_run(
        threads_, x_, [&](int64_t block) { return channels_of(x_, block, p); },
        [&](int64_t run, const NormChannels& channels) {
          lanes_.gradient_sums({x_.shape(), x + x_.offset(run), dy + dy_.offset(run), op_.relu, channels}, sums[run]);
        });
    float *dscale = output(args, 0), *dshift = output(args, 1);
    combine_gradient_sums(x_, sums, p, dscale, dshift);
    std::copy_n(dscale, x_.layout.channels, output(args, 2));
    std::copy_n(dshift, x_.layout.channels, output(args, 2) + x_.layout.channels);
  }

 private:
  SyncBatchNormGradSums op_;
  Runs x_, dy_;
  std::vector<float> zeros_;  // the shift where no ReLU asks for it
};

class SyncBatchNormGradKernel final : public LaneKernel {
 public:
  SyncBatchNormGradKernel(const Context& context, const SyncBatchNormGrad& op, Descs inputs, Descs outputs)
      : LaneKernel(context, 0),
        op_(op),
        x_(inputs[0]),
        dy_(inputs[1]),
        dx_(outputs[0]),
        zeros_(static_cast<size_t>(x_.layout.channels), 0.0F) {}

  void run(const KernelArgs& args) const override {
    const float *x = input(args, 0), *dy = input(args, 1), *sums = input(args, 6);
    const float* shift = op_.relu ? input(args, 5) : zeros_.data();
    const Parameters p{input(args, 2), shift, input(args, 3), input(args, 4), op_.epsilon};
    const auto values = static_cast<double>(op_.values);
    for_each_run(
        threads_, x_,
        [&](int64_t block) { return gradient_channels_of(x_, block, p, values, sums, sums + x_.layout.channels); },
        [&](int64_t run, const GradientChannels& channels) {
          lanes_.gradient({x_.shape(), x + x_.offset(run), dy + dy_.offset(run), op_.relu, channels.norm},
                          channels.gradient, output(args, 0) + dx_.offset(run));
        });
  }

 private:
  SyncBatchNormGrad op_;
  Runs x_, dy_, dx_;
  std::vector<float> zeros_;
};

class BatchNormInferenceKernel final : public LaneKernel {
 public:
  BatchNormInferenceKernel(const Context& context, const BatchNormInference& op, Descs inputs, Descs outputs)
      : LaneKernel(context, 0), op_(op), x_(inputs[0]), y_(outputs[0]) {}

  void run(const KernelArgs& args) const override {
    normalize_runs(lanes_, threads_, x_, y_,
                   {input(args, 1), input(args, 2), input(args, 3), input(args, 4), op_.epsilon}, op_.relu,
                   input(args, 0), output(args, 0));
  }

 private:
  BatchNormInference op_;
  Runs x_, y_;
};

void expect_one_format(const Op& op, const TensorDesc& a, const TensorDesc& b) {
  require(a.format == b.format && (a.format == Format::plain() || a.format.kind == Format::Kind::blocked),
          "{} of {} and {}", op_name(op), a.to_string(), b.to_string());
}

}  // namespace

size_t saved_bytes(const Context&, const BatchNorm& op, Descs inputs) {
  return op.relu ? static_cast<size_t>(inputs[0].shape.c()) * sizeof(float) : 0;
}

size_t saved_bytes(const Context&, const SyncBatchNorm& op, Descs inputs) {
  return op.relu ? static_cast<size_t>(inputs[0].shape.c()) * sizeof(float) : 0;
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

std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInference& op, Descs inputs, Descs outputs) {
  expect_one_format(op, inputs[0], outputs[0]);
  return std::make_unique<BatchNormInferenceKernel>(context, op, inputs, outputs);
}

}  // namespace lockstep::cpu
