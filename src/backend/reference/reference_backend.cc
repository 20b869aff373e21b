#include "backend/backends.h"
#include "backend/host.h"
#include "backend/reference/compute.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Descs = std::span<const TensorDesc>;

// Computes one operation, of the graph (Op) or of the update.
template <class Operation, class T>
class LoopKernel final : public Kernel {
 public:
  LoopKernel(Operation op, Descs inputs, Descs outputs, int threads)
      : op_(std::move(op)),
        inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()),
        threads_(threads) {
    if constexpr (std::is_same_v<Operation, Op>) scratch_ = reference::scratch_elements(op_, inputs_, outputs_);
  }

  void run(const KernelArgs& args) const override {
    const reference::Call<T> call{inputs_, outputs_, args, threads_, scratch_};
    std::visit([&](const auto& op) { reference::Reference<T>::compute(op, call); }, op_);
  }
  size_t workspace_bytes() const override { return threads_ * scratch_ * sizeof(double); }
  std::string implementation() const override { return "loops"; }

 private:
  Operation op_;
  std::vector<TensorDesc> inputs_, outputs_;
  int threads_;
  int64_t scratch_ = 0;
};

template <class Operation>
std::unique_ptr<Kernel> make_kernel(DType dtype, Operation op, Descs inputs, Descs outputs, int threads) {
  if (dtype == DType::f64) {
    return std::make_unique<LoopKernel<Operation, double>>(std::move(op), inputs, outputs, threads);
  }
  if (dtype == DType::f32) {
    return std::make_unique<LoopKernel<Operation, float>>(std::move(op), inputs, outputs, threads);
  }
  fail(ExitCode::config, "the reference backend computes in f32 and f64, not in {}", dtype_name(dtype));
}

class ReferenceBackend final : public HostBackend {
 public:
  explicit ReferenceBackend(const BackendOptions& options) : threads_(options.threads) {
    require(threads_ > 0, "{} compute threads", threads_);
  }

  std::string_view name() const override { return "reference"; }

  FormatChoice choose_formats(const Op&, Descs inputs, Descs outputs) const override {
    return {std::vector<Format>(inputs.size()), std::vector<Format>(outputs.size())};
  }
  bool can(const Op&, Descs, Descs) const override { return true; }
  size_t saved_bytes(const Op& op, Descs inputs) const override { return reference::saved_bytes(op, inputs); }
  size_t storage_bytes(const TensorDesc& desc) const override { return packed_bytes(desc); }

  std::unique_ptr<Kernel> compile(const Op& op, Descs inputs, Descs outputs) const override {
    check(op, inputs, outputs);
    const bool from_bytes = std::holds_alternative<PreparePixels>(op);
    return make_kernel((from_bytes ? outputs : inputs)[0].dtype, op, inputs, outputs, threads_);
  }
  std::unique_ptr<Kernel> compile(const UpdateOp& op) const override {
    return make_kernel(op.dtype, op.op, {}, {}, threads_);
  }

 private:
  static void check(const Op& op, Descs inputs, Descs outputs) {
    const std::vector<TensorDesc> expected = infer(op, inputs);
    if (const auto* cast = std::get_if<Cast>(&op); cast && cast->to != DType::f32 && cast->to != DType::f64) {
      fail(ExitCode::config, "the reference backend computes in f32 and f64, not in {}", dtype_name(cast->to));
    }
    require(outputs.size() == expected.size(), "{} has {} outputs, not {}", op_name(op), expected.size(),
            outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (static_cast<int>(i) == saved_output(op)) continue;
      require(outputs[i] == expected[i], "output {} of {} is {}, expected {}", i, op_name(op), outputs[i].to_string(),
              expected[i].to_string());
    }
    for (const TensorDesc& desc : inputs) {
      require(desc.format == Format::plain(), "{} reads {}, but the reference backend knows the plain format only",
              op_name(op), desc.to_string());
    }
  }

  int threads_;
};

}  // namespace

int64_t reference::scratch_elements(const Op& op, Descs inputs, Descs outputs) {
  return std::visit(
      Overload{
          [&](const OneOf<Conv2d, Conv2dGradInput, Conv2dGradWeights, Conv2dStatistics, Conv2dGradInputNorm,
                          Conv2dNormalizedGradWeights> auto&) { return outputs[0].shape.h() * outputs[0].shape.w(); },
          [&](const LinearGradInput&) { return outputs[0].shape[1]; },
          [&](const LinearGradWeights&) { return inputs[0].shape[1]; }, [](const auto&) { return int64_t{0}; }},
      op);
}

size_t reference::saved_bytes(const Op& op, Descs inputs) {
  return std::visit(Overload{[&](const OneOf<MaxPool, BatchNormMaxPool> auto&) {
                               return infer(op, inputs)[0].shape.elements() * sizeof(int32_t);
                             },
                             [&](const OneOf<BatchNorm, SyncBatchNorm> auto& norm) {
                               return norm.relu ? inputs[0].shape.elements() * sizeof(uint8_t) : 0;
                             },
                             [](const SavesNothing auto&) { return size_t{0}; }},
                    op);
}

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options) {
  return std::make_unique<ReferenceBackend>(options);
}

}  // namespace lockstep
