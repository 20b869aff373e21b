#include "backend/cpu/widened.h"

#include <vector>

#include "backend/cpu/loops.h"
#include "lockstep/tensor/half.h"

namespace lockstep::cpu {
namespace {

constexpr size_t kAlignment = 64;

// One tensor of an operation: its number of stored values, and, if it is bfloat16, where its float32 copy begins in the
// workspace.
struct Operand {
  int64_t count = 0;
  bool widened = false;
  size_t offset = 0;
};

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const Context& context, Descs inputs, Descs outputs, const CompileTensors& compile)
      : threads_(context.threads) {
    const std::vector<TensorDesc> in = widen_all(inputs, inputs_), out = widen_all(outputs, outputs_);
    kernel_ = compile(in, out);
  }

  void run(const KernelArgs& args) const override {
    std::vector<void*> in = addresses(inputs_, args.inputs, args.workspace);
    std::vector<void*> out = addresses(outputs_, args.outputs, args.workspace);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].widened) continue;
      parallel_ranges(threads_, inputs_[i].count, kElementGrain, [&](Range range, int) {
        widen(static_cast<const uint16_t*>(args.inputs[i]) + range.begin, static_cast<float*>(in[i]) + range.begin,
              range.size());
      });
    }
    kernel_->run({args.stream, in, out, static_cast<char*>(args.workspace) + copies_bytes_});
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].widened) continue;
      parallel_ranges(threads_, outputs_[i].count, kElementGrain, [&](Range range, int) {
        narrow(static_cast<const float*>(out[i]) + range.begin, static_cast<uint16_t*>(args.outputs[i]) + range.begin,
               range.size());
      });
    }
  }
  size_t workspace_bytes() const override { return copies_bytes_ + kernel_->workspace_bytes(); }
  std::string implementation() const override { return kernel_->implementation(); }

 private:
  // Returns the descriptions for the float32 kernel and plans the copies.
  std::vector<TensorDesc> widen_all(Descs descs, std::vector<Operand>& operands) {
    std::vector<TensorDesc> widened(descs.begin(), descs.end());
    for (TensorDesc& desc : widened) {
      Operand& operand = operands.emplace_back();
      if (desc.dtype != DType::bf16) continue;
      desc.dtype = DType::f32;
      const size_t bytes = packed_bytes(desc);
      operand = {.count = static_cast<int64_t>(bytes / sizeof(float)), .widened = true, .offset = copies_bytes_};
      copies_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    return widened;
  }
  static std::vector<void*> addresses(const std::vector<Operand>& operands, std::span<void* const> given,
                                      void* workspace) {
    std::vector<void*> result(given.begin(), given.end());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].widened) result[i] = static_cast<char*>(workspace) + operands[i].offset;
    }
    return result;
  }

  int threads_;
  std::vector<Operand> inputs_, outputs_;
  size_t copies_bytes_ = 0;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace

LOCKSTEP_VECTORIZED void widen(const uint16_t* from, float* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = from_bf16(from[i]);
}

LOCKSTEP_VECTORIZED void narrow(const float* from, uint16_t* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

std::unique_ptr<Kernel> compile_widened(const Context& context, Descs inputs, Descs outputs,
                                        const CompileTensors& compile) {
  return std::make_unique<WidenedKernel>(context, inputs, outputs, compile);
}

}  // namespace lockstep::cpu
