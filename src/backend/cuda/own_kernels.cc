// The operations that kernels of our own compute. Images lie channels last, so one of [N,C,H,W] is N H W rows of C.
#include "backend/cuda/check.h"
#include "backend/cuda/context.h"
#include "backend/cuda/launchers.h"
#include "backend/cuda/loss_launchers.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {

Rows rows_of(const TensorDesc& desc) {
  const Shape& s = desc.shape;
  require(s.rank() != 4 || desc.format == dense(s), "{} is not channels last", desc.to_string());
  return {s.n() * s.h() * s.w(), s.c()};
}

SumsMemory sums_memory(const KernelArgs& args) { return {args.workspace, stream_of(args).tickets()}; }

void expect_alike(const Op& op, Descs tensors) {
  expect_element(op, tensors[0].dtype);
  for (const TensorDesc& desc : tensors) {
    require(desc == tensors[0], "{} of {} and {}", op_name(op), tensors[0].to_string(), desc.to_string());
  }
}

Conversion conversion_of(const TensorDesc& from, const TensorDesc& to) {
  const Shape& s = from.shape;
  const auto last = [](const TensorDesc& desc) {
    return desc.format == Format::channels_last() || desc.format == padded();
  };
  if (s.rank() < 4) return {.samples = 1, .channels = s.elements(), .places = 1, .from = from.dtype, .to = to.dtype};
  return {.samples = s.n(),
          .channels = s.c(),
          .places = s.h() * s.w(),
          .from = from.dtype,
          .to = to.dtype,
          .from_channels_last = last(from),
          .to_channels_last = last(to),
          .from_padding = stored_shape(from).c() - s.c(),
          .to_padding = stored_shape(to).c() - s.c()};
}

namespace {

constexpr int64_t kMostLrnChannels = 6144;  // two lines of them fit into a block's shared memory

PoolLaunch pool_of(const Window& window, const Shape& image, const Shape& out) {
  const int64_t elements = std::max(image.elements(), out.elements());
  if (elements >= int64_t{1} << 31) {
    fail(ExitCode::config, "a pool over {} elements; lower train.batch_size", elements);
  }
  return {.window = window, .image = image, .out = out};
}

LrnLaunch lrn_of(const auto& op, const TensorDesc& x) {
  if (x.shape.c() > kMostLrnChannels) {
    fail(ExitCode::config, "local response normalization of {} channels; there is room for {}", x.shape.c(),
         kMostLrnChannels);
  }
  return {.shape = rows_of(x),
          .size = op.size,
          .alpha_over_size = static_cast<float>(op.alpha / static_cast<double>(op.size)),
          .beta = static_cast<float>(op.beta),
          .k = static_cast<float>(op.k)};
}

EmbeddingLaunch bags_of(const KernelArgs& args, const Shape& ids, const Shape& table) {
  return {.ids = input<int32_t>(args, 1),
          .values = input<float>(args, 2),
          .samples = ids[0],
          .most = ids[1],
          .vocabulary = table[0],
          .width = table[1]};
}

LossShape loss_shape(const Shape& logits, double label_smoothing) {
  return {logits[0], logits[1], static_cast<float>(label_smoothing)};
}

}  // namespace

// BatchNorm: slope and shift of each channel, from which backward computes the ReLU's mask again. MaxPool: for each
// output the place of its maximum in the window.
size_t saved_bytes(const Op& op, Descs inputs) {
  return std::visit(
      Overload{[&](const BatchNorm&) { return static_cast<size_t>(2 * inputs[0].shape.c()) * sizeof(float); },
               [&](const SyncBatchNorm&) { return static_cast<size_t>(2 * inputs[0].shape.c()) * sizeof(float); },
               [&](const MaxPool&) { return static_cast<size_t>(infer(op, inputs)[0].shape.elements()); },
               [](const auto&) { return size_t{0}; }},
      op);
}

std::unique_ptr<Kernel> compile(const Context&, const Relu& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [count = inputs[0].shape.elements(), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    launch_relu(stream, dtype, count, input(args, 0), output(args, 0));
  };
  return make_launch_kernel("pointwise", body);
}

std::unique_ptr<Kernel> compile(const Context&, const ReluGrad& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [count = inputs[0].shape.elements(), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    launch_relu_grad(stream, dtype, count, input(args, 0), input(args, 1), output(args, 0));
  };
  return make_launch_kernel("pointwise", body);
}

std::unique_ptr<Kernel> compile(const Context&, const Add& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [count = inputs[0].shape.elements(), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    // kMostTerms at once; of more than that the sum so far is the first term of the next.
    std::array<const void*, kMostTerms> terms{};
    size_t gathered = 0;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      terms[gathered++] = args.inputs[i];
      if (gathered < kMostTerms && i + 1 < args.inputs.size()) continue;
      launch_add(stream, dtype, count, std::span(terms).first(gathered), output(args, 0));
      terms[0] = output(args, 0);
      gathered = 1;
    }
  };
  return make_launch_kernel("pointwise", body);
}

std::unique_ptr<Kernel> compile(const Context&, const Dropout& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  const Shape& s = inputs[0].shape;
  const DropoutLaunch what{.op = op, .samples = s.n(), .channels = s.c(), .places = s.h() * s.w()};
  return make_launch_kernel("dropout", [what, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_dropout(stream, dtype, what, input<int32_t>(args, 1), input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const MaxPool& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  if (op.window.kernel_h * op.window.kernel_w > kNoMaximum) {
    fail(ExitCode::config, "a max pool over {} x {} places; there is room for {}", op.window.kernel_h,
         op.window.kernel_w, kNoMaximum);
  }
  const PoolLaunch pool = pool_of(op.window, inputs[0].shape, outputs[0].shape);
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool(stream, dtype, pool, input(args, 0), output(args, 0), output<uint8_t>(args, 1));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const MaxPoolGrad& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  const PoolLaunch pool = pool_of(op.window, op.input, inputs[0].shape);
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool_grad(stream, dtype, pool, input(args, 0), input<uint8_t>(args, 1), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const AvgPool& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  PoolLaunch pool = pool_of(op.window, inputs[0].shape, outputs[0].shape);
  pool.count_include_pad = op.count_include_pad;
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_avg_pool(stream, dtype, pool, input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const AvgPoolGrad& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  PoolLaunch pool = pool_of(op.window, op.input, inputs[0].shape);
  pool.count_include_pad = op.count_include_pad;
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_avg_pool_grad(stream, dtype, pool, input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const LocalResponseNorm& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  const auto body = [lrn = lrn_of(op, inputs[0]), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                           cudaStream_t stream) {
    launch_lrn(stream, dtype, lrn, input(args, 0), output(args, 0));
  };
  return make_launch_kernel("lrn", body);
}

std::unique_ptr<Kernel> compile(const Context&, const LocalResponseNormGrad& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [lrn = lrn_of(op, inputs[0]), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                           cudaStream_t stream) {
    launch_lrn_grad(stream, dtype, lrn, input(args, 0), input(args, 1), output(args, 0));
  };
  return make_launch_kernel("lrn", body);
}

std::unique_ptr<Kernel> compile(const Context&, const Concat& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  const Rows out = rows_of(outputs[0]);
  std::vector<ChannelCopy> copies;
  int64_t begin = 0;
  for (const TensorDesc& desc : inputs) {
    const int64_t channels = rows_of(desc).channels;
    const bool view = desc.parent_channels > 0;  // lies there already
    copies.push_back({.rows = view ? 0 : out.rows,
                      .channels = channels,
                      .from_channels = channels,
                      .to_channels = out.channels,
                      .to_begin = begin,
                      .element_bytes = dtype_bytes(desc.dtype)});
    begin += channels;
  }
  return make_launch_kernel("copy", [copies](const KernelArgs& args, cudaStream_t stream) {
    for (size_t i = 0; i < copies.size(); ++i) {
      if (copies[i].rows > 0) launch_channel_copy(stream, copies[i], input(args, i), output(args, 0));
    }
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Slice& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  if (outputs[0].parent_channels > 0) return make_launch_kernel("view", [](const KernelArgs&, cudaStream_t) {});
  const Rows in = rows_of(inputs[0]);
  const ChannelCopy copy{.rows = in.rows,
                         .channels = op.count,
                         .from_channels = in.channels,
                         .from_begin = op.begin,
                         .to_channels = op.count,
                         .element_bytes = dtype_bytes(inputs[0].dtype)};
  return make_launch_kernel("copy", [copy](const KernelArgs& args, cudaStream_t stream) {
    launch_channel_copy(stream, copy, input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Reshape&, Descs inputs, Descs) {
  return make_launch_kernel("copy", [bytes = packed_bytes(inputs[0])](const KernelArgs& args, cudaStream_t stream) {
    if (input(args, 0) == output(args, 0)) return;
    check(cudaMemcpyAsync(output(args, 0), input(args, 0), bytes, cudaMemcpyDeviceToDevice, stream), "a reshape");
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Reorder& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  return make_launch_kernel("convert",
                            [what = conversion_of(inputs[0], outputs[0])](const KernelArgs& args, cudaStream_t stream) {
                              launch_convert(stream, what, input(args, 0), output(args, 0));
                            });
}

std::unique_ptr<Kernel> compile(const Context&, const Cast& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_element(op, op.to);
  require(inputs[0].dtype == DType::f32 || op.to == DType::f32, "a cast from {} to {}", dtype_name(inputs[0].dtype),
          dtype_name(op.to));
  return make_launch_kernel("convert",
                            [what = conversion_of(inputs[0], outputs[0])](const KernelArgs& args, cudaStream_t stream) {
                              launch_convert(stream, what, input(args, 0), output(args, 0));
                            });
}

std::unique_ptr<Kernel> compile(const Context&, const EmbeddingBag&, Descs inputs, Descs) {
  require(inputs[0].dtype == DType::f32, "embeddings of {}", inputs[0].to_string());
  return make_launch_kernel(
      "embedding", [table = inputs[0].shape, ids = inputs[1].shape](const KernelArgs& args, cudaStream_t stream) {
        launch_embedding(stream, bags_of(args, ids, table), {input<float>(args, 0), input<float>(args, 3)},
                         output<float>(args, 0));
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

std::unique_ptr<Kernel> compile(const Context&, const SoftmaxCrossEntropy& op, Descs inputs, Descs) {
  require(inputs[0].dtype == DType::f32, "the loss of {}", inputs[0].to_string());
  const LossShape shape = loss_shape(inputs[0].shape, op.label_smoothing);
  const auto body = [shape](const KernelArgs& args, cudaStream_t stream) {
    launch_loss(stream, shape,
                {.logits = input<float>(args, 0),
                 .labels = input<int32_t>(args, 1),
                 .weights = input<float>(args, 2),
                 .probabilities = output<float>(args, 0),
                 .loss = output<float>(args, 1),
                 .correct = output<int32_t>(args, 2),
                 .workspace = args.workspace});
  };
  return make_launch_kernel("loss", body, loss_workspace_bytes(shape.samples));
}

std::unique_ptr<Kernel> compile(const Context&, const SoftmaxCrossEntropyGrad& op, Descs inputs, Descs) {
  require(inputs[0].dtype == DType::f32, "the loss of {}", inputs[0].to_string());
  const auto body = [op, shape = loss_shape(inputs[0].shape, op.label_smoothing)](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    launch_loss_grad(stream, shape,
                     {.probabilities = input<float>(args, 0),
                      .labels = input<int32_t>(args, 1),
                      .weights = input<float>(args, 2),
                      .loss_scale = args.inputs.size() > 3 ? input<float>(args, 3) : nullptr,
                      .scale = static_cast<float>(op.scale),
                      .dlogits = output<float>(args, 0)});
  };
  return make_launch_kernel("loss", body);
}

}  // namespace lockstep::cuda
