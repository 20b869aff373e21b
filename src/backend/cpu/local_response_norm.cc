// Local response normalization across channels, by our own loops: oneDNN has a fast implementation only for nhwc. The
// channels of one pixel (n, h, w) at a time are gathered into a line, so that sums over neighbours have stride 1.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kGrain = 64;  // pixels

struct Normalization {
  int64_t half;  // of the window, without its middle
  float alpha;   // divided by the window's size
  float beta, k;

  template <class Op>
  explicit Normalization(const Op& op)
      : half(op.size / 2),
        alpha(static_cast<float>(op.alpha / static_cast<double>(op.size))),
        beta(static_cast<float>(op.beta)),
        k(static_cast<float>(op.k)) {}
};

// Lines of C values in one thread's scratch memory; lines that sums over neighbours read have zeros on both sides.
struct Lines {
  Lines(float* scratch, int64_t channels, int64_t half)
      : length_(line_length(channels, half)), margin_(half), scratch_(scratch) {}
  static constexpr int kCount = 5;
  static int64_t line_length(int64_t channels, int64_t half) { return channels + 2 * half; }
  static size_t bytes(int64_t channels, int64_t half) { return kCount * line_length(channels, half) * sizeof(float); }
  float* operator[](int i) const { return scratch_ + i * length_ + margin_; }

 private:
  int64_t length_, margin_;
  float* scratch_;
};

void gather(const ChannelLayout& layout, const float* from, float* line) {
  for (int64_t b = 0; b < layout.blocks; ++b) {
    const int64_t c = b * layout.block;
    std::copy_n(from + c * layout.pixels, std::min(layout.block, layout.channels - c), line + c);
  }
}

void scatter(const ChannelLayout& layout, const float* line, float* to) {
  for (int64_t b = 0; b < layout.blocks; ++b) {
    const int64_t c = b * layout.block, lanes = std::min(layout.block, layout.channels - c);
    float* block = std::copy_n(line + c, lanes, to + c * layout.pixels);
    std::fill_n(block, layout.block - lanes, 0.0F);
  }
}

LOCKSTEP_VECTORIZED void multiply(const float* a, const float* b, float* product, int64_t count) {
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) product[c] = a[c] * b[c];
}

// sums[c] = values[c - half] + ... + values[c + half]
LOCKSTEP_VECTORIZED void sum_neighbours(const float* values, int64_t half, float* sums, int64_t count) {
  for (int64_t c = 0; c < count; ++c) sums[c] = values[c];
  for (int64_t shift = 1; shift <= half; ++shift) {
    for (int64_t c = 0; c < count; ++c) sums[c] += values[c - shift] + values[c + shift];
  }
}

// values = (k + alpha * values), and powers = that to the power -beta.
LOCKSTEP_VECTORIZED void raise(const Normalization& norm, float* values, float* powers, int64_t count) {
  const float alpha = norm.alpha, k = norm.k;
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) values[c] = k + alpha * values[c];
  if (norm.beta == 0.75F) {  // the usual value: square roots are vectorized, pow is not
    for (int64_t c = 0; c < count; ++c) powers[c] = 1 / std::sqrt(values[c] * std::sqrt(values[c]));
    return;
  }
  for (int64_t c = 0; c < count; ++c) powers[c] = std::pow(values[c], -norm.beta);
}

// terms = dy * x * scale^(-beta - 1), the contribution of each channel to its neighbours' gradients.
LOCKSTEP_VECTORIZED void gradient_terms(const float* products, const float* powers, const float* scales, float* terms,
                                        int64_t count) {
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) terms[c] = products[c] * powers[c] / scales[c];
}

LOCKSTEP_VECTORIZED void combine(const float* dy, const float* powers, const float* x, const float* sums, float factor,
                                 float* dx, int64_t count) {
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) dx[c] = dy[c] * powers[c] - factor * x[c] * sums[c];
}

// Calls body(offset of the pixel's first channel, the thread's lines) for every pixel.
template <class Body>
void for_each_pixel(int threads, const ChannelLayout& layout, int64_t half, void* workspace, const Body& body) {
  const size_t bytes = Lines::bytes(layout.channels, half);
  parallel_ranges(threads, layout.samples * layout.pixels, kGrain, [&](Range range, int thread) {
    char* scratch = static_cast<char*>(workspace) + thread * bytes;
    std::fill_n(scratch, bytes, '\0');
    const Lines lines(reinterpret_cast<float*>(scratch), layout.channels, half);
    for (int64_t i = range.begin; i < range.end; ++i) {
      body(layout.offset(i / layout.pixels, 0, i % layout.pixels), lines);
    }
  });
}

template <class Op>
size_t scratch_bytes(const Context& context, const Op& op, const TensorDesc& x) {
  return context.threads * Lines::bytes(x.shape.c(), Normalization(op).half);
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const LocalResponseNorm& op, Descs inputs, Descs) {
  const ChannelLayout layout(inputs[0]);
  const Normalization norm(op);
  const auto body = [layout, norm, threads = context.threads](const KernelArgs& args) {
    const int64_t channels = layout.channels;
    for_each_pixel(threads, layout, norm.half, args.workspace, [&](int64_t at, const Lines& lines) {
      float *x = lines[0], *squares = lines[1], *scales = lines[2], *powers = lines[3];
      gather(layout, input(args, 0) + at, x);
      multiply(x, x, squares, channels);
      sum_neighbours(squares, norm.half, scales, channels);
      raise(norm, scales, powers, channels);
      multiply(x, powers, x, channels);
      scatter(layout, x, output(args, 0) + at);
    });
  };
  return make_loop_kernel(body, scratch_bytes(context, op, inputs[0]));
}

std::unique_ptr<Kernel> compile(const Context& context, const LocalResponseNormGrad& op, Descs inputs, Descs) {
  require(inputs[0].format == inputs[1].format, "LocalResponseNormGrad of {} and {}", inputs[0].to_string(),
          inputs[1].to_string());
  const ChannelLayout layout(inputs[0]);
  const Normalization norm(op);
  const auto body = [layout, norm, threads = context.threads](const KernelArgs& args) {
    const int64_t channels = layout.channels;
    const float factor = 2 * norm.alpha * norm.beta;
    for_each_pixel(threads, layout, norm.half, args.workspace, [&](int64_t at, const Lines& lines) {
      float *x = lines[0], *dy = lines[1], *terms = lines[2], *scales = lines[3], *powers = lines[4];
      gather(layout, input(args, 0) + at, x);
      gather(layout, input(args, 1) + at, dy);
      multiply(x, x, terms, channels);
      sum_neighbours(terms, norm.half, scales, channels);
      raise(norm, scales, powers, channels);
      multiply(dy, x, terms, channels);
      gradient_terms(terms, powers, scales, terms, channels);
      sum_neighbours(terms, norm.half, scales, channels);
      combine(dy, powers, x, scales, factor, dy, channels);
      scatter(layout, dy, output(args, 0) + at);
    });
  };
  return make_loop_kernel(body, scratch_bytes(context, op, inputs[0]));
}

}  // namespace lockstep::cpu
