// Elementwise operations, by our own loops over memory: padding is zero and stays zero.
#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "backend/host.h"
#include "backend/kernels/functors.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kGrain = 4096;  // elements; with fewer a second thread does not pay

int64_t stored_elements(const TensorDesc& desc) {
  return static_cast<int64_t>(packed_bytes(desc) / dtype_bytes(desc.dtype));
}

void expect_one_format(const Op& op, Descs tensors) {
  for (const TensorDesc& desc : tensors) {
    require(desc.format == tensors[0].format && desc.format.kind != Format::Kind::opaque, "{} reads {} and {}",
            op_name(op), tensors[0].to_string(), desc.to_string());
  }
}

// A NaN passes, so that a diverged run is noticed.
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

LOCKSTEP_VECTORIZED void add(const float* a, const float* b, float* sum, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

// Drops from adjacent elements whose counters differ by `step`.
void drop(const DropoutMask& mask, uint64_t counter, uint64_t step, std::span<const float> x, double factor, float* y) {
  for (const float value : x) {
    *y++ = mask.keeps(counter) ? static_cast<float>(value * factor) : 0;
    counter += step;
  }
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const Relu&, Descs inputs, Descs) {
  const int64_t count = stored_elements(inputs[0]);
  return make_loop_kernel([count, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, count, kGrain, [&](Range range, int) {
      relu(input(args, 0) + range.begin, output(args, 0) + range.begin, range.size());
    });
  });
}

std::unique_ptr<Kernel> compile(const Context& context, const ReluGrad& op, Descs inputs, Descs) {
  expect_one_format(op, inputs);
  const int64_t count = stored_elements(inputs[0]);
  return make_loop_kernel([count, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, count, kGrain, [&](Range range, int) {
      const int64_t i = range.begin;
      relu_grad(input(args, 0) + i, input(args, 1) + i, output(args, 0) + i, range.size());
    });
  });
}

// The output may be the memory of the first summand, so this summand is read first. The sum is formed piece by piece,
// so that it stays in the cache.
std::unique_ptr<Kernel> compile(const Context& context, const Add& op, Descs inputs, Descs) {
  expect_one_format(op, inputs);
  const int64_t count = stored_elements(inputs[0]);
  return make_loop_kernel([count, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, count, kGrain, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; i += kGrain) {
        const int64_t piece = std::min(kGrain, range.end - i);
        float* sum = output(args, 0) + i;
        add(input(args, 0) + i, input(args, 1) + i, sum, piece);
        for (size_t k = 2; k < args.inputs.size(); ++k) add(sum, input(args, k) + i, sum, piece);
      }
    });
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
