#include "backend/cuda/embedding.h"

#include "backend/cuda/context.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

EmbeddingLaunch bags_of(const KernelArgs& args, const Shape& ids, const Shape& table) {
  return {.ids = input<int32_t>(args, 1),
          .values = input<float>(args, 2),
          .samples = ids[0],
          .max_ids = ids[1],
          .vocabulary = table[0],
          .width = table[1]};
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const EmbeddingBag&, Descs inputs, Descs) {
  require(inputs[0].dtype == DType::f32, "embeddings of {}", inputs[0].to_string());
  return make_launch_kernel(
      "embedding", [table = inputs[0].shape, ids = inputs[1].shape](const KernelArgs& args, cudaStream_t stream) {
        launch_embedding(stream, bags_of(args, ids, table),
                         {.table = input<float>(args, 0), .bias = input<float>(args, 3)}, output<float>(args, 0));
      });
}

std::unique_ptr<Kernel> compile(const Context&, const EmbeddingBagGrad&, Descs inputs, Descs outputs) {
  require(inputs[0].dtype == DType::f32, "embeddings of {}", inputs[0].to_string());
  const Rows rows{inputs[0].shape[0], inputs[0].shape[1]};
  const auto body = [rows, table = outputs[0].shape, ids = inputs[1].shape](const KernelArgs& args,
                                                                            cudaStream_t stream) {
    launch_embedding_grad(stream, bags_of(args, ids, table), input<float>(args, 0), output<float>(args, 0));
    launch_channel_sums(stream, DType::f32, rows, args.inputs[0], args.outputs[1], sums_memory(args));
  };
  return make_launch_kernel("embedding", body, channel_sums_bytes(rows));
}

}  // namespace lockstep::cuda
