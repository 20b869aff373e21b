// Winograd's method against direct sums in float64. The cases run once more for each smaller instruction set.
#include "backend/cpu/winograd.h"

#include <cmath>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/base/random.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::cpu;

namespace {

// A plain tensor [N,C,H,W].
struct Plain {
  Shape shape;
  std::vector<double> values;
  explicit Plain(const Shape& of) : shape(of), values(static_cast<size_t>(of.elements())) {}
  Plain(const Shape& of, uint64_t key) : Plain(of) {
    RandomStream random{random_key(key)};
    for (double& value : values) value = double{static_cast<float>(random.normal())};
  }
  double& at(int64_t n, int64_t c, int64_t h, int64_t w) {
    return values[static_cast<size_t>(((n * shape.c() + c) * shape.h() + h) * shape.w() + w)];
  }
};

struct Convolved {
  Plain y, dx, dw, bias_gradient;
};

// Calls f(y, x) for the pixels of output and input that meet in element (i, j) of the weights.
template <class F>
void for_each_pixel(const Shape& x, const Shape& y, const Window& w, int64_t i, int64_t j, const F& f) {
  for (int64_t h = 0; h < y.h(); ++h) {
    for (int64_t v = 0; v < y.w(); ++v) {
      const int64_t row = h + i - w.pad_h, column = v + j - w.pad_w;
      if (row >= 0 && row < x.h() && column >= 0 && column < x.w()) f(h * y.w() + v, row * x.w() + column);
    }
  }
}

Convolved convolved(Plain& x, Plain& w, Plain& dy, const Plain& bias, const Window& window) {
  Convolved r{Plain(dy.shape), Plain(x.shape), Plain(w.shape), Plain(bias.shape)};
  for (int64_t n = 0; n < x.shape.n(); ++n) {
    for (int64_t o = 0; o < dy.shape.c(); ++o) {
      double* const y = &r.y.at(n, o, 0, 0);
      const double* const g = &dy.at(n, o, 0, 0);
      const int64_t pixels = dy.shape.h() * dy.shape.w();
      for (int64_t p = 0; p < pixels; ++p) {
        y[p] += bias.values[static_cast<size_t>(o)];
        r.bias_gradient.values[static_cast<size_t>(o)] += g[p];
      }
      for (int64_t c = 0; c < x.shape.c(); ++c) {
        for (int64_t e = 0; e < window.kernel_h * window.kernel_w; ++e) {
          const int64_t row = e / window.kernel_w, column = e % window.kernel_w;
          const double weight = w.at(o, c, row, column);
          const double* const from = &x.at(n, c, 0, 0);
          double* const dx = &r.dx.at(n, c, 0, 0);
          double sum = 0;
          for_each_pixel(x.shape, dy.shape, window, row, column, [&](int64_t q, int64_t p) {
            y[q] += weight * from[p];
            dx[p] += weight * g[q];
            sum += g[q] * from[p];
          });
          r.dw.at(o, c, row, column) += sum;
        }
      }
    }
  }
  return r;
}

// In blocks of channels, or plain where the block is one channel.
struct Stored {
  int64_t block;
  Shape shape;
  Buffer buffer;
  Stored(const Backend& backend, const TensorDesc& desc)
      : block(desc.format.kind == Format::Kind::blocked ? desc.format.id : 1),
        shape(desc.shape),
        buffer(backend.allocate(backend.storage_bytes(desc))) {}
  float& at(int64_t i) const {
    const int64_t pixels = shape.rank() == 4 ? shape.h() * shape.w() : 1, channels = shape.rank() == 4 ? shape.c() : 1;
    const int64_t n = i / pixels / channels, c = i / pixels % channels, p = i % pixels;
    const int64_t blocks = (channels + block - 1) / block;
    return buffer.as<float>()[((n * blocks + c / block) * pixels + p) * block + c % block];
  }
  void fill(const Plain& from) const {
    for (size_t i = 0; i < from.values.size(); ++i) at(static_cast<int64_t>(i)) = static_cast<float>(from.values[i]);
  }
  // The RMS of the difference, relative to that of the values expected.
  double error(const Plain& expected) const {
    double difference = 0, size = 0;
    for (size_t i = 0; i < expected.values.size(); ++i) {
      difference += std::pow(double{at(static_cast<int64_t>(i))} - expected.values[i], 2);
      size += std::pow(expected.values[i], 2);
    }
    return std::sqrt(difference / size);
  }
};

struct Case {
  Shape x;
  int64_t out;
  Window window;
  int threads;
};

double bound(const Window& w) { return w.kernel_h == 7 || w.kernel_w == 7 ? 3e-6 : 2e-6; }  // docs/training.md

void check(const Case& c, uint64_t key) {
  INFO(c.x.to_string() << " to " << c.out << ", kernel " << c.window.kernel_h << "x" << c.window.kernel_w
                       << ", padding " << c.window.pad_h << ", " << c.window.pad_w << ", " << c.threads << " threads");
  const Context context(BackendOptions{.threads = c.threads});
  const auto backend = make_backend("cpu", {.threads = c.threads});
  const auto stream = backend->make_stream();
  const Shape weights{c.out, c.x.c(), c.window.kernel_h, c.window.kernel_w};
  const Shape out{c.x.n(), c.out, c.x.h() + 2 * c.window.pad_h - c.window.kernel_h + 1,
                  c.x.w() + 2 * c.window.pad_w - c.window.kernel_w + 1};
  Plain px(c.x, key), pw(weights, key + 1), pdy(out, key + 2);
  const Plain pb({c.out}, key + 3);
  const Convolved expected = convolved(px, pw, pdy, pb, c.window);

  const TensorDesc x{c.x, DType::f32, context.blocked}, y{out, DType::f32, context.blocked};
  const TensorDesc w{weights, DType::f32, {}}, b{{c.out}, DType::f32, {}};
  const WinogradConvolution convolution{x, y, c.window, true};
  const Stored sx(*backend, x), sw(*backend, w), sdy(*backend, y), sb(*backend, b);
  sx.fill(px), sw.fill(pw), sdy.fill(pdy), sb.fill(pb);
  const Stored ry(*backend, y), rdx(*backend, x), rdw(*backend, w), rdb(*backend, b);
  const auto run = [&](const Kernel& kernel, std::vector<const Stored*> in, std::vector<const Stored*> results) {
    std::vector<void*> inputs, outputs;
    for (const Stored* i : in) inputs.push_back(i->buffer.data());
    for (const Stored* o : results) outputs.push_back(o->buffer.data());
    const Buffer workspace = backend->allocate(kernel.workspace_bytes());
    std::fill_n(workspace.as<float>(), kernel.workspace_bytes() / sizeof(float), std::nanf(""));
    kernel.run({*stream, inputs, outputs, workspace.data()});
    const std::vector<float> once(results[0]->buffer.as<float>(),
                                  results[0]->buffer.as<float>() + results[0]->buffer.bytes() / sizeof(float));
    kernel.run({*stream, inputs, outputs, workspace.data()});
    CHECK(std::equal(once.begin(), once.end(), results[0]->buffer.as<float>()));  // the same bits
  };
  run(*make_winograd_forward(context, convolution), {&sx, &sw, &sb}, {&ry});
  run(*make_winograd_input_gradient(context, convolution), {&sdy, &sw}, {&rdx});
  run(*make_winograd_weights_gradient(context, convolution), {&sx, &sdy}, {&rdw, &rdb});
  CHECK(ry.error(expected.y) < bound(c.window));
  CHECK(rdx.error(expected.dx) < bound(c.window));
  CHECK(rdw.error(expected.dw) < bound(c.window));
  CHECK(rdb.error(expected.bias_gradient) < bound(c.window));
}

}  // namespace

TEST_CASE("the cpu backend's Winograd convolutions are close to float64 at 200 random shapes") {
  RandomStream random{random_key(1)};
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.uniform(0, static_cast<double>(high - low + 1)));
  };
  constexpr std::pair<int64_t, int64_t> kKernels[] = {{3, 3}, {1, 3}, {3, 1}, {1, 7}, {7, 1}};
  for (uint64_t i = 0; i < 200; ++i) {
    const auto [h, w] = kKernels[i < 100 ? 0 : i % std::size(kKernels)];
    const Window window{h, w, 1, 1, between(0, h - 1), between(0, w - 1)};
    check({{between(1, 3), between(1, 40), between(h, 20), between(w, 20)},
           between(1, 40),
           window,
           static_cast<int>(between(1, 3))},
          10 * i);
  }
}

TEST_CASE("the cpu backend's Winograd convolutions are close to float64 where tiles are many and where they are few") {
  check({{2, 20, 90, 70}, 12, {3, 3, 1, 1, 1, 1}, 2}, 1);
  check({{2, 200, 5, 6}, 150, {3, 3, 1, 1, 1, 1}, 2}, 2);
  check({{2, 20, 90, 70}, 12, {1, 7, 1, 1, 0, 3}, 2}, 3);
  check({{2, 200, 6, 5}, 150, {7, 1, 1, 1, 3, 0}, 2}, 4);
}
