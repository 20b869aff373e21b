#include "test/backend/op_cases.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::test {
namespace {

// Shape of what `op` makes of `x` with parameters of the given shapes: the shape of dy.
Shape output_shape(const Op& op, std::initializer_list<Shape> inputs) {
  std::vector<TensorDesc> descs;
  for (const Shape& shape : inputs) descs.push_back({shape, DType::f32, {}});
  return infer(op, descs)[0].shape;
}

Window window(int64_t kernel, int64_t stride, int64_t pad) { return {kernel, kernel, stride, stride, pad, pad}; }

std::string describe(const Shape& x, const Window& w) {
  return fmt::format("{} window {}x{} stride {}x{} pad {}x{}", x.to_string(), w.kernel_h, w.kernel_w, w.stride_h,
                     w.stride_w, w.pad_h, w.pad_w);
}

OpCase conv_case(const Shape& x, int64_t out, const Window& w, bool bias = false, int64_t groups = 1) {
  const Shape weights{out, x.c() / groups, w.kernel_h, w.kernel_w};
  OpCase result{.name = fmt::format("conv {} to {} channels{}{}", describe(x, w), out, bias ? " bias" : "",
                                    groups > 1 ? fmt::format(" in {} groups", groups) : "")};
  result.inputs = {{x}, {weights, Fill::weight}};
  result.dy = 2;
  if (bias) {
    result.inputs.push_back({{out}, Fill::small});
    result.dy = 3;
  }
  const Conv2d conv{w, bias, groups};
  const Shape y = bias ? output_shape(conv, {x, weights, {out}}) : output_shape(conv, {x, weights});
  result.inputs.push_back({y});
  result.steps = {{conv, bias ? std::vector{0, 1, 2} : std::vector{0, 1}},
                  {Conv2dGradInput{w, x, groups}, {result.dy, 1}},
                  {Conv2dGradWeights{w, bias, groups}, {0, result.dy}}};
  const int dx = result.dy + 2;
  result.adjoints = {{0, dx}, {1, dx + 1}};
  if (bias) result.adjoints.push_back({2, dx + 2});
  return result;
}

OpCase linear_case(int64_t batch, int64_t in, int64_t out) {
  return {.name = fmt::format("linear [{},{}] to {}", batch, in, out),
          .inputs = {{{batch, in}}, {{out, in}, Fill::weight}, {{out}, Fill::small}, {{batch, out}}},
          .steps = {{Linear{}, {0, 1, 2}}, {LinearGradInput{}, {3, 1}}, {LinearGradWeights{}, {0, 3}}},
          .dy = 3,
          .adjoints = {{0, 5}, {1, 6}, {2, 7}}};
}

OpCase product_case(int64_t batch, int64_t in, int64_t out) {
  return {.name = fmt::format("linear [{},{}] to {} without bias", batch, in, out),
          .inputs = {{{batch, in}}, {{out, in}, Fill::weight}, {{batch, out}}},
          .steps = {{Linear{false}, {0, 1}}, {LinearGradInput{}, {2, 1}}, {LinearGradWeights{false}, {0, 2}}},
          .dy = 2,
          .adjoints = {{0, 4}, {1, 5}}};
}

OpCase embedding_case(int64_t batch, int64_t most, int64_t vocabulary, int64_t width) {
  return {.name = fmt::format("embedding of {} ids of {} to [{},{}]", most, vocabulary, batch, width),
          .inputs = {{{vocabulary, width}},
                     {{batch, most}, Fill::ids, vocabulary},
                     {{batch, most}},
                     {{width}, Fill::small},
                     {{batch, width}}},
          .steps = {{EmbeddingBag{}, {0, 1, 2, 3}}, {EmbeddingBagGrad{vocabulary}, {4, 1, 2}}},
          .dy = 4,
          .adjoints = {{0, 6}, {3, 7}}};
}

OpCase norm_case(const Shape& x, bool relu) {
  const Shape c{x.c()};
  return {.name = fmt::format("batch norm{} {}", relu ? " relu" : "", x.to_string()),
          .inputs = {{x}, {c, Fill::positive}, {c, Fill::small}, {x}},
          .steps = {{BatchNorm{1e-3, relu}, {0, 1, 2}}, {BatchNormGrad{1e-3, relu}, {0, 3, 1, 5, 6, 7}}},
          .dy = 3,
          .adjoints = {{0, 8}, {1, 9}, {2, 10}}};
}

OpCase norm_inference_case(const Shape& x, bool relu) {
  const Shape c{x.c()};
  return {.name = fmt::format("batch norm inference{} {}", relu ? " relu" : "", x.to_string()),
          .inputs = {{x}, {c, Fill::positive}, {c, Fill::small}, {c, Fill::small}, {c, Fill::positive}, {x}},
          .steps = {{BatchNormInference{1e-3, relu}, {0, 1, 2, 3, 4}},
                    {BatchNormInferenceGrad{1e-3, relu}, {0, 5, 1, 3, 4, 2}}},
          .dy = 5,
          .adjoints = {{0, 7}, {1, 8}, {2, 9}}};
}

OpCase moments_case(int64_t channels) {
  const Shape c{channels};
  return {.name = fmt::format("batch moments of {} channels", channels),
          .inputs = {{c, Fill::small}, {c, Fill::positive}, {c, Fill::small}},
          .steps = {{BatchMoments{24}, {0, 1, 2}}}};
}

OpCase max_pool_case(const Shape& x, const Window& w) {
  return {.name = "max pool " + describe(x, w),
          .inputs = {{x}, {output_shape(MaxPool{w}, {x})}},
          .steps = {{MaxPool{w}, {0}}, {MaxPoolGrad{w, x}, {1, 3}}},
          .dy = 1,
          .adjoints = {{0, 4}}};
}

OpCase avg_pool_case(const Shape& x, const Window& w, bool count_include_pad) {
  return {.name = fmt::format("average pool {} {} padding", describe(x, w), count_include_pad ? "with" : "without"),
          .inputs = {{x}, {output_shape(AvgPool{w, count_include_pad}, {x})}},
          .steps = {{AvgPool{w, count_include_pad}, {0}}, {AvgPoolGrad{w, count_include_pad, x}, {1}}},
          .dy = 1,
          .adjoints = {{0, 3}}};
}

OpCase response_norm_case(const Shape& x, const LocalResponseNorm& n) {
  return {.name = fmt::format("local response norm {} size {}", x.to_string(), n.size),
          .inputs = {{x}, {x}},
          .steps = {{n, {0}}, {LocalResponseNormGrad{n.size, n.alpha, n.beta, n.k}, {0, 1}}},
          .dy = 1,
          .adjoints = {{0, 3}}};
}

OpCase relu_case(const Shape& x, bool six = false) {
  return {.name = (six ? "relu6 " : "relu ") + x.to_string(),
          .inputs = {{x}, {x}},
          .steps = {{Relu{six}, {0}}, {ReluGrad{six}, {2, 1}}},
          .dy = 1,
          .adjoints = {{0, 3}}};
}

OpCase add_case(const Shape& x, int count) {
  OpCase result{.name = fmt::format("add {} of {}", count, x.to_string())};
  Step add{Add{}, {}};
  for (int i = 0; i < count; ++i) {
    result.inputs.push_back({x});
    add.inputs.push_back(i);
  }
  result.steps = {add};
  return result;
}

OpCase dropout_case(const Shape& x, double rate) {
  const Dropout dropout{rate, fnv1a64("dropout")};
  return {.name = fmt::format("dropout {} of {}", rate, x.to_string()),
          .inputs = {{x}, {{4}, Fill::step}, {x}},
          .steps = {{dropout, {0, 1}}, {dropout, {2, 1}}},
          .dy = 2,
          .adjoints = {{0, 4}}};
}

OpCase concat_case(const Shape& x, std::initializer_list<int64_t> channels) {
  OpCase result{.name = fmt::format("concat {} of {}", fmt::join(channels, "+"), x.to_string())};
  Step concat{Concat{}, {}};
  int64_t total = 0;
  for (int64_t c : channels) {
    concat.inputs.push_back(static_cast<int>(result.inputs.size()));
    result.inputs.push_back({{x.n(), c, x.h(), x.w()}});
    total += c;
  }
  result.dy = static_cast<int>(result.inputs.size());
  result.inputs.push_back({{x.n(), total, x.h(), x.w()}});
  result.steps.push_back(concat);
  int64_t begin = 0;
  int member = 0;
  for (int64_t c : channels) {
    result.steps.push_back({Slice{begin, c}, {result.dy}});
    result.adjoints.push_back({member, result.dy + 2 + member});
    begin += c;
    ++member;
  }
  return result;
}

OpCase reshape_case(const Shape& x, const Shape& y) {
  return {.name = fmt::format("reshape {} to {}", x.to_string(), y.to_string()),
          .inputs = {{x}, {y}},
          .steps = {{Reshape{y}, {0}}, {Reshape{x}, {1}}},
          .dy = 1,
          .adjoints = {{0, 3}}};
}

OpCase loss_case(int64_t batch, int64_t classes, double smoothing) {
  return {.name = fmt::format("cross-entropy [{},{}] smoothing {}", batch, classes, smoothing),
          .inputs = {{{batch, classes}}, {{batch}, Fill::label, classes}, {{batch}, Fill::sample_weight}},
          .steps = {{SoftmaxCrossEntropy{smoothing}, {0, 1, 2}}, {SoftmaxCrossEntropyGrad{smoothing, 1}, {3, 1, 2}}},
          .adjoints = {{0, 6}}};
}

void add_convolutions(std::vector<OpCase>& cases) {
  // Inception-v3's geometries at small sizes: the stem, the factorized 7x7, the reductions, 448 channels at the end.
  cases.push_back(conv_case({2, 3, 17, 17}, 32, window(3, 2, 0)));
  cases.push_back(conv_case({2, 32, 9, 9}, 64, window(3, 1, 1)));
  cases.push_back(conv_case({1, 32, 9, 9}, 32, window(3, 1, 0)));
  cases.push_back(conv_case({2, 64, 9, 9}, 80, window(1, 1, 0)));
  cases.push_back(conv_case({1, 80, 7, 7}, 192, window(3, 1, 0)));
  cases.push_back(conv_case({2, 48, 7, 7}, 64, window(5, 1, 2)));
  cases.push_back(conv_case({2, 96, 7, 7}, 96, window(3, 2, 0)));
  cases.push_back(conv_case({2, 64, 5, 5}, 96, {1, 7, 1, 1, 0, 3}));
  cases.push_back(conv_case({2, 64, 5, 5}, 96, {7, 1, 1, 1, 3, 0}));
  cases.push_back(conv_case({1, 448, 3, 3}, 384, window(3, 1, 1)));
  cases.push_back(conv_case({1, 64, 3, 3}, 48, {1, 3, 1, 1, 0, 1}));
  cases.push_back(conv_case({1, 64, 3, 3}, 48, {3, 1, 1, 1, 1, 0}));
  cases.push_back(conv_case({1, 64, 5, 5}, 32, window(5, 1, 0)));  // the auxiliary head: one output pixel
  // The CIFAR network's, with bias; ResNet's stem and strided 1x1.
  cases.push_back(conv_case({3, 3, 12, 12}, 64, window(5, 1, 2), true));
  cases.push_back(conv_case({2, 64, 6, 6}, 64, window(5, 1, 2), true));
  cases.push_back(conv_case({1, 3, 23, 23}, 64, window(7, 2, 3)));
  cases.push_back(conv_case({2, 64, 7, 7}, 32, window(1, 2, 0)));
  // Awkward ones: channels off the vector width, an even kernel, oblong images, taps that only ever see padding.
  cases.push_back(conv_case({3, 5, 7, 4}, 7, window(3, 1, 1), true));
  cases.push_back(conv_case({2, 64, 23, 18}, 80, window(3, 1, 1), true));  // tiles of 4x4 that end outside
  cases.push_back(conv_case({1, 1, 6, 9}, 1, window(2, 2, 1)));
  cases.push_back(conv_case({2, 17, 5, 8}, 19, {3, 2, 2, 1, 1, 0}));
  cases.push_back(conv_case({2, 3, 1, 2}, 4, {5, 7, 1, 1, 2, 3}));
  cases.push_back(conv_case({2, 2, 6, 12}, 8, {3, 5, 1, 2, 1, 2}));  // a GPU reads pairs of pixels in 16 bits
  // Groups: ResNeXt's, MobileNet's (one channel each), and off the vector width.
  cases.push_back(conv_case({2, 64, 9, 9}, 64, window(3, 1, 1), false, 4));
  cases.push_back(conv_case({2, 48, 7, 7}, 48, window(3, 2, 1), false, 48));
  cases.push_back(conv_case({1, 3, 6, 6}, 6, window(3, 1, 1), true, 3));
  cases.push_back(conv_case({3, 10, 5, 4}, 15, {3, 1, 1, 2, 1, 0}, true, 5));
}

void add_norms(std::vector<OpCase>& cases) {
  for (bool relu : {false, true}) {
    cases.push_back(norm_case({2, 32, 9, 9}, relu));
    cases.push_back(norm_case({3, 80, 5, 5}, relu));
    cases.push_back(norm_case({2, 448, 2, 2}, relu));
    cases.push_back(norm_case({1, 7, 5, 3}, relu));
    cases.push_back(norm_case({5, 17, 1, 1}, relu));
    cases.push_back(norm_inference_case({2, 48, 5, 5}, relu));
    cases.push_back(norm_inference_case({1, 7, 5, 3}, relu));
  }
  cases.push_back(moments_case(64));
  cases.push_back(moments_case(17));
  const LocalResponseNorm cifar{.size = 9, .alpha = 0.009, .beta = 0.75, .k = 1};
  cases.push_back(response_norm_case({2, 64, 6, 6}, cifar));
  cases.push_back(response_norm_case({3, 64, 3, 3}, cifar));
  cases.push_back(response_norm_case({1, 20, 3, 5}, {.size = 5, .alpha = 0.5, .beta = 0.75, .k = 2}));
  cases.push_back(response_norm_case({2, 3, 2, 2}, {.size = 7, .alpha = 1, .beta = 0.5, .k = 1}));
}

void add_pools(std::vector<OpCase>& cases) {
  cases.push_back(max_pool_case({2, 64, 9, 9}, window(3, 2, 0)));
  cases.push_back(max_pool_case({1, 288, 7, 7}, window(3, 2, 0)));
  cases.push_back(max_pool_case({2, 64, 12, 12}, window(3, 2, 1)));
  cases.push_back(max_pool_case({3, 5, 7, 6}, window(3, 1, 1)));
  cases.push_back(max_pool_case({1, 17, 8, 5}, {2, 3, 2, 1, 0, 1}));
  cases.push_back(avg_pool_case({2, 192, 7, 7}, window(3, 1, 1), true));
  cases.push_back(avg_pool_case({3, 5, 6, 7}, window(3, 1, 1), true));
  cases.push_back(avg_pool_case({3, 5, 6, 7}, window(3, 1, 1), false));
  cases.push_back(avg_pool_case({1, 16, 7, 8}, window(3, 2, 1), false));
  cases.push_back(avg_pool_case({2, 32, 17, 17}, window(5, 3, 0), true));  // the auxiliary head's
  cases.push_back(avg_pool_case({2, 80, 8, 8}, window(8, 1, 0), true));
  cases.push_back(avg_pool_case({2, 33, 2, 2}, window(2, 1, 0), true));
}

void add_others(std::vector<OpCase>& cases) {
  cases.push_back(linear_case(3, 192, 48));
  cases.push_back(linear_case(2, 2048, 10));
  cases.push_back(linear_case(1, 5, 3));
  cases.push_back(product_case(3, 192, 48));
  cases.push_back(product_case(2, 5, 3));
  cases.push_back(embedding_case(40, 14, 124, 10));
  cases.push_back(embedding_case(5, 9, 3, 17));
  cases.push_back(embedding_case(1, 1, 1, 1));
  cases.push_back(relu_case({2, 48, 5, 5}));
  cases.push_back(relu_case({3, 7, 3, 5}));
  cases.push_back(relu_case({3, 37}));
  cases.push_back(relu_case({2, 48, 5, 5}, true));
  cases.push_back(add_case({2, 48, 5, 5}, 2));
  cases.push_back(add_case({1, 7, 3, 5}, 4));
  cases.push_back(dropout_case({3, 48, 2, 2}, 0.2));
  cases.push_back(dropout_case({5, 37}, 0.5));
  cases.push_back(dropout_case({2, 16}, 0));
  cases.push_back(concat_case({2, 0, 5, 5}, {64, 48, 96, 32}));
  cases.push_back(concat_case({1, 0, 3, 5}, {5, 16, 7}));
  cases.push_back(concat_case({3, 0, 1, 1}, {2}));
  cases.push_back(reshape_case({2, 48, 3, 3}, {2, 432}));
  cases.push_back(reshape_case({3, 17, 1, 1}, {3, 17}));
  for (double smoothing : {0.0, 0.1}) {
    cases.push_back(loss_case(8, 1000, smoothing));
    cases.push_back(loss_case(5, 10, smoothing));
    cases.push_back(loss_case(3, 3, smoothing));
  }
}

double fill_value(const CaseInput& input, uint64_t key, int64_t i) {
  RandomStream random(random_key(key, static_cast<uint64_t>(i)));
  switch (input.fill) {
    case Fill::activation:
      return random.normal();
    case Fill::weight: {
      const Shape& s = input.shape;
      return random.normal() / std::sqrt(static_cast<double>(s.elements() / s[0]));
    }
    case Fill::positive:
      return random.uniform(0.5, 1.5);
    case Fill::small:
      return random.normal() / 10;
    case Fill::label:
      return static_cast<double>(random.below(static_cast<uint64_t>(input.classes)));
    case Fill::ids: {
      const int64_t most = input.shape[1];
      const bool ends = i % most == (i / most * 2 + 1) % (most + 1);
      return ends ? -1 : static_cast<double>(random.below(static_cast<uint64_t>(input.classes)));
    }
    case Fill::sample_weight:
      return 1 - 0.5 * static_cast<double>(i % 3);
    case Fill::step:
      return static_cast<double>(i == 3 ? 0 : static_cast<int32_t>(random.bits() >> 33));
  }
  fail(ExitCode::internal, "unknown fill");
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  add_convolutions(cases);
  add_norms(cases);
  add_pools(cases);
  add_others(cases);
  return cases;
}

std::vector<HostTensor> case_inputs(const OpCase& op_case, DType dtype) {
  std::vector<HostTensor> result;
  for (size_t k = 0; k < op_case.inputs.size(); ++k) {
    const CaseInput& input = op_case.inputs[k];
    const bool whole = input.fill == Fill::label || input.fill == Fill::ids || input.fill == Fill::step;
    HostTensor tensor{input.shape, whole ? DType::i32 : dtype, {}};
    const uint64_t key = random_key(fnv1a64(op_case.name), k);
    for (int64_t i = 0; i < input.shape.elements(); ++i) {
      const double value = fill_value(input, key, i);
      tensor.values.push_back(whole ? value : double{static_cast<float>(value)});
    }
    result.push_back(std::move(tensor));
  }
  return result;
}

}  // namespace lockstep::test
