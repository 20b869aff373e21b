// What cuDNN and cuBLAS do on a GPU, by the reference backend: in float32, on plain copies of the tensors.
#include "backend/backends.h"
#include "backend/cuda/context.h"
#include "backend/cuda/placement.h"

namespace lockstep::cuda {
namespace {

std::vector<TensorDesc> plain(Descs tensors) {
  std::vector<TensorDesc> result;
  for (const TensorDesc& desc : tensors) result.push_back({desc.shape, DType::f32, Format::plain()});
  return result;
}

class ByReference final : public Kernel {
 public:
  ByReference(const Op& op, Descs inputs, Descs outputs)
      : inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()),
        kernel_(backend_->compile(op, plain(inputs), plain(outputs))) {}

  void run(const KernelArgs& args) const override {
    std::vector<std::vector<float>> memory;
    std::vector<void*> inputs, outputs;
    const auto copy_of = [&](const TensorDesc& desc) {
      return static_cast<void*>(memory.emplace_back(static_cast<size_t>(desc.shape.elements())).data());
    };
    const std::vector<TensorDesc> plain_inputs = plain(inputs_), plain_outputs = plain(outputs_);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(copy_of(inputs_[i]));
      launch_convert(nullptr, conversion_of(inputs_[i], plain_inputs[i]), args.inputs[i], inputs[i]);
    }
    for (const TensorDesc& desc : outputs_) outputs.push_back(copy_of(desc));
    std::vector<double> workspace(kernel_->workspace_bytes() / sizeof(double) + 1);
    kernel_->run({*stream_, inputs, outputs, workspace.data()});
    for (size_t i = 0; i < outputs_.size(); ++i) {
      launch_convert(nullptr, conversion_of(plain_outputs[i], outputs_[i]), outputs[i], args.outputs[i]);
    }
  }
  std::string implementation() const override { return "reference"; }

 private:
  std::unique_ptr<Backend> backend_ = make_reference_backend({.threads = 1});
  std::unique_ptr<Stream> stream_ = backend_->make_stream();
  std::vector<TensorDesc> inputs_, outputs_;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const Conv2d& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const Conv2dGradInput& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const Conv2dGradWeights& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const Conv2dStatistics& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const Conv2dNormalizedGradWeights& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const Conv2dGradInputNorm& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
bool can(const Context&, const Conv2dStatistics&, Descs inputs, Descs) { return inputs[0].dtype == DType::f16; }
bool can(const Context&, const Conv2dNormalizedGradWeights&, Descs inputs, Descs) {
  return inputs[0].dtype == DType::f16;
}
bool can(const Context&, const Conv2dGradInputNorm&, Descs inputs, Descs) { return inputs[0].dtype == DType::f16; }
std::unique_ptr<Kernel> compile(const Context&, const Linear& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const LinearGradInput& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}
std::unique_ptr<Kernel> compile(const Context&, const LinearGradWeights& op, Descs inputs, Descs outputs) {
  return std::make_unique<ByReference>(op, inputs, outputs);
}

}  // namespace lockstep::cuda
