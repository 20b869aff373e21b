// A kernel that runs one primitive of oneDNN.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cpu/context.h"

namespace lockstep::cpu {

// An operation's tensor as an argument of the primitive: DNNL_ARG_SRC and so on, with its layout. kUnused marks a
// tensor of the operation that this primitive does not use.
struct PrimitiveArgument {
  static constexpr int kUnused = -1;
  int name = kUnused;
  MemoryDesc desc = {};
};

// The arguments in the order of the operation's inputs and outputs.
struct PrimitiveArguments {
  std::vector<PrimitiveArgument> inputs, outputs;
};

class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(const Context& context, dnnl::primitive primitive, const dnnl::primitive_desc_base& description,
                  const PrimitiveArguments& arguments);

  void run(const KernelArgs& args) const override;
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return implementation_; }

 private:
  // Memory objects without memory, bound to the step's addresses in run(); an empty one represents an unused tensor.
  using Bindings = std::vector<dnnl::memory>;
  Bindings make_bindings(const Context& context, const std::vector<PrimitiveArgument>& arguments);

  dnnl::primitive primitive_;
  mutable dnnl::stream stream_;
  int threads_;
  std::string implementation_;
  size_t workspace_bytes_;
  std::unordered_map<int, dnnl::memory> arguments_;  // the same objects by name, in the form that execute() needs
  Bindings inputs_, outputs_;
  dnnl::memory scratch_;
};

// The kernel of primitive P from its description.
template <class P>
std::unique_ptr<Kernel> make_primitive_kernel(const Context& context, const typename P::primitive_desc& description,
                                              const PrimitiveArguments& arguments) {
  return std::make_unique<PrimitiveKernel>(context, P(description), description, arguments);
}

}  // namespace lockstep::cpu
