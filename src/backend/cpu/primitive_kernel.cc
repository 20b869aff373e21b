#include "backend/cpu/primitive_kernel.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

void bind(const std::vector<dnnl::memory>& bindings, std::span<void* const> addresses) {
  require(addresses.size() == bindings.size(), "{} tensors for {} arguments", addresses.size(), bindings.size());
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (bindings[i]) bindings[i].set_data_handle(addresses[i]);
  }
}

}  // namespace

PrimitiveKernel::PrimitiveKernel(const Context& context, dnnl::primitive primitive,
                                 const dnnl::primitive_desc_base& description, const PrimitiveArguments& arguments)
    : primitive_(std::move(primitive)),
      stream_(context.stream),
      threads_(context.threads),
      implementation_(description.impl_info_str()),
      workspace_bytes_(description.scratchpad_desc().get_size()),
      inputs_(make_bindings(context, arguments.inputs)),
      outputs_(make_bindings(context, arguments.outputs)) {
  if (workspace_bytes_ == 0) return;
  scratch_ = dnnl::memory(description.scratchpad_desc(), context.engine, DNNL_MEMORY_NONE);
  arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratch_);
}

PrimitiveKernel::Bindings PrimitiveKernel::make_bindings(const Context& context,
                                                         const std::vector<PrimitiveArgument>& arguments) {
  Bindings bindings;
  for (const PrimitiveArgument& argument : arguments) {
    if (argument.name == PrimitiveArgument::kUnused) {
      bindings.emplace_back();
      continue;
    }
    bindings.push_back(dnnl::memory(argument.desc, context.engine, DNNL_MEMORY_NONE));
    arguments_.emplace(argument.name, bindings.back());
  }
  return bindings;
}

void PrimitiveKernel::run(const KernelArgs& args) const {
  const ThreadScope scope(threads_);
  bind(inputs_, args.inputs);
  bind(outputs_, args.outputs);
  if (scratch_) scratch_.set_data_handle(args.workspace);
  try {
    primitive_.execute(stream_, arguments_);
  } catch (const dnnl::error& e) {
    fail(ExitCode::internal, "oneDNN's {} failed: {}", implementation_, e.what());
  }
}

}  // namespace lockstep::cpu
