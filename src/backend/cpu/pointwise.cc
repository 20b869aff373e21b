// Elementwise operations, by our own loops over memory: padding is zero and stays zero.
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/widened.h"
#include "backend/dropout_mask.h"
#include "backend/kernels/functors.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kPiece = 1024;  // elements of bfloat16 tensors that are widened at a time, so that they stay in cache
constexpr size_t kMaxInputs = 16;

int64_t stored_elements(const TensorDesc& desc) {
  return static_cast<int64_t>(packed_bytes(desc) / dtype_bytes(desc.dtype));
}

void expect_alike(const Op& op, Descs tensors) {
  for (const TensorDesc& desc : tensors) {
    require(
        desc.format == tensors[0].format && desc.dtype == tensors[0].dtype && desc.format.kind != Format::Kind::opaque,
        "{} reads {} and {}", op_name(op), tensors[0].to_string(), desc.to_string());
  }
}

// Passes NaN on, so that a diverged run is noticed.
LOCKSTEP_VECTORIZED void relu(const float* x, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = kernels::relu(x[i]);
}

LOCKSTEP_VECTORIZED void relu_grad(const float* y, const float* dy, float* dx, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = kernels::relu_gradient(y[i], dy[i]);
  }
}

LOCKSTEP_VECTORIZED void relu6(const float* x, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = kernels::relu6(x[i]);
}

LOCKSTEP_VECTORIZED void relu6_grad(const float* y, const float* dy, float* dx, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) dx[i] = kernels::relu6_gradient(y[i], dy[i]);
}

LOCKSTEP_VECTORIZED void add(const float* a, const float* b, float* sum, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

using Inputs = std::span<const float* const>;
using Formula = void (*)(Inputs in, float* out, int64_t count);

// Calls the formula on the elements of a range, piece by piece, so that they stay in the cache.
void apply(const Formula& formula, const KernelArgs& args, Range range) {
  std::array<const float*, kMaxInputs> in;
  for (int64_t i = range.begin; i < range.end; i += kElementGrain) {
    for (size_t k = 0; k < args.inputs.size(); ++k) in[k] = input(args, k) + i;
    formula({in.data(), args.inputs.size()}, output(args, 0) + i, std::min(kElementGrain, range.end - i));
  }
}

void apply_widened(const Formula& formula, const KernelArgs& args, Range range) {
  std::array<std::array<float, kPiece>, kMaxInputs> pieces;
  std::array<const float*, kMaxInputs> in;
  for (size_t k = 0; k < args.inputs.size(); ++k) in[k] = pieces[k].data();
  for (int64_t i = range.begin; i < range.end; i += kPiece) {
    const int64_t count = std::min(kPiece, range.end - i);
    for (size_t k = 0; k < args.inputs.size(); ++k) widen(input<uint16_t>(args, k) + i, pieces[k].data(), count);
    formula({in.data(), args.inputs.size()}, pieces[0].data(), count);
    narrow(pieces[0].data(), output<uint16_t>(args, 0) + i, count);
  }
}

// Returns a kernel of a formula that may write over its first input.
std::unique_ptr<Kernel> compile_elementwise(const Context& context, const Op& op, Descs inputs, Formula formula) {
  expect_alike(op, inputs);
  require(inputs.size() <= kMaxInputs, "{} has {} inputs", op_name(op), inputs.size());
  const auto apply_all = inputs[0].dtype == DType::bf16 ? apply_widened : apply;
  return make_loop_kernel([=, count = stored_elements(inputs[0]), threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, count, kElementGrain, [&](Range range, int) { apply_all(formula, args, range); });
  });
}

// Applies dropout to adjacent elements whose counters differ by `step`.
void drop(const DropoutMask& mask, uint64_t counter, uint64_t step, std::span<const float> x, double factor, float* y) {
  for (const float value : x) {
    *y++ = mask.keeps(counter) ? static_cast<float>(value * factor) : 0;
    counter += step;
  }
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const Relu& op, Descs inputs, Descs) {
  constexpr Formula kRelu = [](Inputs in, float* y, int64_t count) { relu(in[0], y, count); };
  constexpr Formula kRelu6 = [](Inputs in, float* y, int64_t count) { relu6(in[0], y, count); };
  return compile_elementwise(context, op, inputs, op.six ? kRelu6 : kRelu);
}

std::unique_ptr<Kernel> compile(const Context& context, const ReluGrad& op, Descs inputs, Descs) {
  constexpr Formula kRelu = [](Inputs in, float* dx, int64_t count) { relu_grad(in[0], in[1], dx, count); };
  constexpr Formula kRelu6 = [](Inputs in, float* dx, int64_t count) { relu6_grad(in[0], in[1], dx, count); };
  return compile_elementwise(context, op, inputs, op.six ? kRelu6 : kRelu);
}

// The output may be the memory of the first summand, so this summand is read first.
std::unique_ptr<Kernel> compile(const Context& context, const Add& op, Descs inputs, Descs) {
  return compile_elementwise(context, op, inputs, [](Inputs in, float* sum, int64_t count) {
    add(in[0], in[1], sum, count);
    for (const float* summand : in.subspan(2)) add(sum, summand, sum, count);
  });
}

std::unique_ptr<Kernel> compile(const Context& context, const Dropout& op, Descs inputs, Descs) {
  const ChannelLayout layout(inputs[0]);
  return make_loop_kernel([op, layout, threads = context.threads](const KernelArgs& args) {
    const DropoutMask mask(op, std::span<const int32_t, 4>(input<int32_t>(args, 1), 4));
    const double factor = 1 / (1 - op.rate);
    const auto pixels = static_cast<uint64_t>(layout.pixels);
    parallel_ranges(threads, layout.samples * layout.blocks, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const int64_t n = i / layout.blocks, c = i % layout.blocks * layout.block;
        const auto lanes = static_cast<size_t>(std::min(layout.block, layout.channels - c));
        const uint64_t first = mask.counter(n, layout.channels * layout.pixels) + static_cast<uint64_t>(c) * pixels;
        for (uint64_t p = 0; p < pixels; ++p) {
          const int64_t at = layout.offset(n, c, static_cast<int64_t>(p));
          float* y = output(args, 0) + at;
          drop(mask, first + p, pixels, {input(args, 0) + at, lanes}, factor, y);
          std::fill(y + lanes, y + layout.block, 0.0F);
        }
      }
    });
  });
}

}  // namespace lockstep::cpu
