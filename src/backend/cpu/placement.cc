// Operations that only move data. The channels that Concat and Slice copy are contiguous within a sample, plain or in
// whole blocks, so they are copies of pieces.
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/primitive_kernel.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

bool whole_blocks(const Context& context, int64_t channels) { return channels % context.blocked.id == 0; }

size_t sample_bytes(const TensorDesc& desc) { return packed_bytes(desc) / desc.shape.n(); }

// The same number of contiguous bytes of every sample.
struct Piece {
  size_t bytes = 0;
  size_t input = 0;                  // index of the input
  size_t from = 0, from_stride = 0;  // offset in sample 0 of the source, and from sample to sample
  size_t to = 0, to_stride = 0;
};

// The output is a view of the input: there is nothing to copy.
class ViewKernel final : public Kernel {
 public:
  void run(const KernelArgs&) const override {}
  std::string implementation() const override { return "view"; }
};

void copy_piece(const Piece& piece, int64_t n, const void* from, void* to) {
  const auto sample = static_cast<size_t>(n);
  std::memcpy(static_cast<char*>(to) + piece.to + sample * piece.to_stride,
              static_cast<const char*>(from) + piece.from + sample * piece.from_stride, piece.bytes);
}

// Copies nothing if the output is the input's memory.
std::unique_ptr<Kernel> make_copy(const TensorDesc& desc) {
  return make_loop_kernel([bytes = packed_bytes(desc)](const KernelArgs& args) {
    if (args.outputs[0] != args.inputs[0]) std::memcpy(args.outputs[0], args.inputs[0], bytes);
  });
}

std::unique_ptr<Kernel> compile_reorder(const Context& context, const Op& op, const TensorDesc& x,
                                        const TensorDesc& y) {
  MemoryDesc from = context.memory_desc(x), to = context.memory_desc(y);
  if (x.format == Format::plain()) from = with_dimensions_of(to, from);
  if (y.format == Format::plain()) to = with_dimensions_of(from, to);
  const auto d = describe_reorder(context.engine, from, to);
  require(static_cast<bool>(d), "oneDNN has no {} from {} to {}", op_name(op), x.to_string(), y.to_string());
  return make_primitive_kernel<dnnl::reorder>(context, d,
                                              {.inputs = {{DNNL_ARG_FROM, from}}, .outputs = {{DNNL_ARG_TO, to}}});
}

}  // namespace

FormatChoice choose_formats(const Context& context, const Concat&, Descs inputs, Descs outputs) {
  const bool in_blocks =
      std::ranges::all_of(inputs, [&](const TensorDesc& desc) { return whole_blocks(context, desc.shape.c()); });
  return leading_in(in_blocks ? context.blocked : Format::plain(), inputs.size(), inputs, outputs);
}

FormatChoice choose_formats(const Context& context, const Slice& op, Descs inputs, Descs outputs) {
  const bool in_blocks =
      inputs[0].format == context.blocked && whole_blocks(context, op.begin) && whole_blocks(context, op.count);
  return leading_in(in_blocks ? context.blocked : Format::plain(), 1, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const Concat&, Descs inputs, Descs outputs) {
  std::vector<Piece> members;
  size_t to = 0;
  for (size_t number = 0; number < inputs.size(); ++number) {
    const TensorDesc& desc = inputs[number];
    require(desc.format == outputs[0].format, "Concat of {} into {}", desc.to_string(), outputs[0].to_string());
    const size_t bytes = sample_bytes(desc);
    const size_t at = to;
    to += bytes;
    if (desc.parent_channels > 0) continue;  // a view: it is part of the output already
    members.push_back(
        {.bytes = bytes, .input = number, .from_stride = bytes, .to = at, .to_stride = sample_bytes(outputs[0])});
  }
  require(to == sample_bytes(outputs[0]), "Concat into {} of members that do not end at a block",
          outputs[0].to_string());
  if (members.empty()) return std::make_unique<ViewKernel>();
  return make_loop_kernel([members, samples = outputs[0].shape.n(), threads = context.threads](const KernelArgs& args) {
    const auto count = static_cast<int64_t>(members.size());
    parallel_ranges(threads, samples * count, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const Piece& member = members[i % count];
        copy_piece(member, i / count, args.inputs[member.input], args.outputs[0]);
      }
    });
  });
}

std::unique_ptr<Kernel> compile(const Context& context, const Slice& op, Descs inputs, Descs outputs) {
  const ChannelLayout layout(inputs[0]);
  require(inputs[0].format == outputs[0].format && op.begin % layout.block == 0 && op.count % layout.block == 0,
          "Slice of {} into {}", inputs[0].to_string(), outputs[0].to_string());
  if (outputs[0].parent_channels > 0) return std::make_unique<ViewKernel>();
  const size_t bytes = sample_bytes(outputs[0]);
  const Piece piece{.bytes = bytes,
                    .from = layout.offset(0, op.begin, 0) * dtype_bytes(inputs[0].dtype),
                    .from_stride = sample_bytes(inputs[0]),
                    .to_stride = bytes};
  return make_loop_kernel([piece, samples = layout.samples, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, samples, 1, [&](Range range, int) {
      for (int64_t n = range.begin; n < range.end; ++n) copy_piece(piece, n, args.inputs[0], args.outputs[0]);
    });
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Reshape&, Descs inputs, Descs) { return make_copy(inputs[0]); }

std::unique_ptr<Kernel> compile(const Context&, const SumOverRanks&, Descs inputs, Descs) {
  return make_copy(inputs[0]);
}

std::unique_ptr<Kernel> compile(const Context& context, const Reorder& op, Descs inputs, Descs outputs) {
  return compile_reorder(context, op, inputs[0], outputs[0]);
}

std::unique_ptr<Kernel> compile(const Context& context, const Cast& op, Descs inputs, Descs outputs) {
  return compile_reorder(context, op, inputs[0], outputs[0]);
}

}  // namespace lockstep::cpu
