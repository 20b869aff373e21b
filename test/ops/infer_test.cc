#include <set>

#include "lockstep/base/error.h"
#include "lockstep/ops/ops.h"
#include "lockstep/ops/pixels.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::vector<TensorDesc> f32(std::initializer_list<Shape> shapes) {
  std::vector<TensorDesc> descs;
  for (const Shape& shape : shapes) descs.push_back({shape, DType::f32, Format::plain()});
  return descs;
}

Window window(int64_t kernel, int64_t stride, int64_t pad) { return {kernel, kernel, stride, stride, pad, pad}; }

struct Example {
  Op op;
  std::vector<TensorDesc> inputs;
  std::vector<Shape> outputs;
};

// One of each operation, on images [2,4,6,6].
std::vector<Example> examples() {
  const Shape x{2, 4, 6, 6}, half{2, 4, 3, 3}, c{4}, sums{8};
  const Window conv = window(3, 1, 1), pool = window(2, 2, 0);
  return {
      {Conv2d{conv, true}, f32({x, {5, 4, 3, 3}, {5}}), {{2, 5, 6, 6}}},
      {Conv2dGradInput{conv, x}, f32({{2, 5, 6, 6}, {5, 4, 3, 3}}), {x}},
      {Conv2dGradWeights{conv, true}, f32({x, {2, 5, 6, 6}}), {{5, 4, 3, 3}, {5}}},
      {Linear{}, f32({{2, 7}, {3, 7}, {3}}), {{2, 3}}},
      {Linear{false}, f32({{2, 7}, {3, 7}}), {{2, 3}}},
      {LinearGradWeights{false}, f32({{2, 7}, {2, 3}}), {{3, 7}}},
      {LinearGradInput{}, f32({{2, 3}, {3, 7}}), {{2, 7}}},
      {LinearGradWeights{}, f32({{2, 7}, {2, 3}}), {{3, 7}, {3}}},
      {EmbeddingBag{}, f32({{9, 5}, {2, 3}, {2, 3}, {5}}), {{2, 5}}},
      {EmbeddingBagGrad{9}, f32({{2, 5}, {2, 3}, {2, 3}}), {{9, 5}, {5}}},
      {BatchNorm{}, f32({x, c, c}), {x, c, c, {0}}},
      {BatchNormGrad{}, f32({x, x, c, c, c, {0}}), {x, c, c}},
      {BatchNormInference{}, f32({x, c, c, c, c}), {x}},
      {BatchNormInferenceGrad{}, f32({x, x, c, c, c, c}), {x, c, c}},
      {BatchMoments{2}, f32({c, c, c}), {c, c}},
      {SyncBatchNormSums{}, f32({x, c}), {sums}},
      {SyncBatchNorm{.values = 144}, f32({x, c, c, c, sums}), {x, c, c, {0}}},
      {SyncBatchNormGradSums{}, f32({x, x, c, c, c, {0}}), {c, c, sums}},
      {SyncBatchNormGrad{.values = 144}, f32({x, x, c, c, c, {0}, sums}), {x}},
      {SumOverRanks{}, f32({sums}), {sums}},
      {Relu{}, f32({x}), {x}},
      {ReluGrad{}, f32({x, x}), {x}},
      {Add{}, f32({x, x, x}), {x}},
      {Dropout{}, f32({x, {4}}), {x}},
      {MaxPool{pool}, f32({x}), {half, {0}}},
      {MaxPoolGrad{pool, x}, f32({half, {0}}), {x}},
      {MaxPoolGradSum{pool, x}, f32({half, {0}, x, x}), {x}},
      {AvgPool{pool}, f32({x}), {half}},
      {AvgPoolGrad{.window = pool, .input = x}, f32({half}), {x}},
      {LocalResponseNorm{}, f32({x}), {x}},
      {LocalResponseNormGrad{}, f32({x, x}), {x}},
      {Concat{}, f32({x, {2, 1, 6, 6}}), {{2, 5, 6, 6}}},
      {Slice{1, 2}, f32({x}), {{2, 2, 6, 6}}},
      {Reshape{{2, 144}}, f32({x}), {{2, 144}}},
      {Reorder{}, f32({x}), {x}},
      {Cast{DType::bf16}, f32({x}), {x}},
      {CastMany{DType::bf16}, f32({x, c}), {x, c}},
      {PreparePixels{.changes = true}, f32({{2, 6, 5, 3}, {2, kImageChanges}}), {{2, 3, 6, 5}}},
      {SoftmaxCrossEntropy{}, f32({{2, 7}, {2}, {2}}), {{2, 7}, {}, {2}}},
      {SoftmaxCrossEntropyGrad{}, f32({{2, 7}, {2}, {2}, {}}), {{2, 7}}},
      {Conv2dStatistics{conv, true}, f32({x, {5, 4, 3, 3}, c, c}), {{2, 5, 6, 6}, {5}, {5}}},
      {Conv2dNormalizedGradWeights{conv}, f32({x, {2, 5, 6, 6}, c, c}), {{5, 4, 3, 3}}},
      {Conv2dGradInputNorm{conv, x}, f32({{2, 5, 6, 6}, {5, 4, 3, 3}, x, c, c, c, c}), {x, c, c, c, c, c}},
      {BatchNormGradApply{}, f32({x, x, c, c, c}), {x}},
      {BatchNormOfSums{.values = 72, .samples = 2, .begin = 4}, f32({sums, sums, c, c, c}), {c, c, c, c, c, c, c, c}},
      {BatchNormStatistics{.samples = 2}, f32({x, c, c, c}), {c, c, c, c, c, c, c, c}},
      {BatchNormOfSumsGrad{}, f32({x, x, c, c, c, c}), {x, c, c}},
      {AvgPoolStatistics{.window = pool, .samples = 2}, f32({x, c, c, c}), {half, c, c, c, c, c, c, c, c}},
      {BatchNormGradSums{}, f32({x, x, c}), {c, c, c}},
      {BatchNormGradOfSums{.begin = 4}, f32({x, x, c, c, c, sums, sums}), {x}},
      {MaxPoolGradNormSums{pool, x}, f32({half, {0}, x, c, x}), {x, c, c, c}},
      {BatchNormMaxPoolGradOfSums{pool}, f32({x, half, c, c, c, {0}, c, c}), {x}},
      {BatchNormMaxPool{pool}, f32({x, c, c, c}), {half, {0}}},
      {BatchNormMaxPoolGrad{.window = pool, .pooled_sums = true}, f32({x, half, c, c, c, c, {0}, half}), {x, c, c}},
  };
}

struct Mistake {
  Op op;
  std::vector<TensorDesc> inputs;
  std::string message;
};

void check_messages(ExitCode code, const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    INFO(mistake.message);
    try {
      infer(mistake.op, mistake.inputs);
      FAIL("not refused");
    } catch (const Error& error) {
      CHECK(error.what() == mistake.message);
      CHECK(error.code() == code);
    }
  }
}

}  // namespace

TEST_CASE("every operation infers the shapes of its outputs") {
  std::set<size_t> seen;
  for (const Example& example : examples()) {
    INFO(op_name(example.op));
    seen.insert(example.op.index());
    std::vector<Shape> shapes;
    for (const TensorDesc& desc : infer(example.op, example.inputs)) shapes.push_back(desc.shape);
    CHECK(shapes == example.outputs);
  }
  CHECK(seen.size() == std::variant_size_v<Op>);
}

TEST_CASE("operations have the names of their types, each its own") {
  std::set<std::string_view> names;
  for (const Example& example : examples()) names.insert(op_name(example.op));
  CHECK(names.size() == std::variant_size_v<Op>);
  CHECK(op_name(Conv2dGradWeights{}) == "Conv2dGradWeights");
  CHECK(op_name(SyncBatchNormGradSums{}) == "SyncBatchNormGradSums");
  CHECK(op_name(SoftmaxCrossEntropyGrad{}) == "SoftmaxCrossEntropyGrad");
}

TEST_CASE("the saved output of an operation is the one whose bytes the backend counts") {
  for (const Example& example : examples()) {
    INFO(op_name(example.op));
    int saved = -1;
    const std::vector<TensorDesc> outputs = infer(example.op, example.inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].dtype == DType::u8) saved = static_cast<int>(i);
    }
    CHECK(saved_output(example.op) == saved);
  }
}

TEST_CASE("an input that may be overwritten is of the shape and type of the first output") {
  for (const Example& example : examples()) {
    INFO(op_name(example.op));
    const int input = in_place_input(example.op);
    if (input >= 0) CHECK(example.inputs.at(static_cast<size_t>(input)) == infer(example.op, example.inputs)[0]);
  }
  CHECK(in_place_input(BatchNormGrad{}) == 1);  // the output's gradient, not the image
  CHECK(in_place_input(BatchNormInferenceGrad{}) == 1);
  CHECK(in_place_input(ReluGrad{}) == 1);
  CHECK(in_place_input(Add{}) == 0);
  CHECK(in_place_input(BatchNorm{}) == -1);  // backward reads the image
  CHECK(in_place_input(Conv2d{}) == -1);
}

TEST_CASE("a layer and its two gradients count the same multiply-adds, and nothing else counts any") {
  for (const Example& example : examples()) {
    INFO(op_name(example.op));
    int64_t expected = 0;
    if (op_name(example.op).starts_with("Conv2d")) expected = int64_t{2} * 5 * 6 * 6 * 4 * 3 * 3;
    if (op_name(example.op).starts_with("Linear")) expected = int64_t{2} * 3 * 7;
    CHECK(multiply_adds(example.op, example.inputs, infer(example.op, example.inputs)) == expected);
  }
}

TEST_CASE("each group of a convolution has its share of the channels, and of the multiply-adds") {
  const Shape x{2, 4, 6, 6}, y{2, 8, 6, 6};
  const Window w = window(3, 1, 1);
  for (const auto& [groups, weights] : {std::pair(int64_t{2}, Shape{8, 2, 3, 3}), {int64_t{4}, Shape{8, 1, 3, 3}}}) {
    for (const auto& [op, inputs, output] : {std::tuple(Op(Conv2d{w, false, groups}), f32({x, weights}), y),
                                             {Conv2dGradInput{w, x, groups}, f32({y, weights}), x},
                                             {Conv2dGradWeights{w, false, groups}, f32({x, y}), weights}}) {
      INFO(op_name(op));
      const std::vector<TensorDesc> outputs = infer(op, inputs);
      CHECK(outputs[0].shape == output);
      CHECK(multiply_adds(op, inputs, outputs) == y.elements() * 4 / groups * 9);
    }
  }
}

TEST_CASE("outputs take the element type of what they are made of") {
  const TensorDesc x{{2, 4, 6, 6}, DType::bf16, Format::channels_last()}, c{{4}, DType::f32, Format::plain()};
  const auto norm = infer(BatchNorm{}, std::vector{x, c, c});
  CHECK(norm[0] == TensorDesc{x.shape, DType::bf16, Format::plain()});
  CHECK(norm[1] == c);
  CHECK(infer(Cast{DType::f16}, std::vector{x})[0].dtype == DType::f16);
  CHECK(infer(SyncBatchNormSums{}, std::vector{x, c})[0].dtype == DType::f32);
}

TEST_CASE("windows count what fits whole, padding on both sides included") {
  const auto pooled = [](int64_t size, const Window& w) {
    return infer(MaxPool{w}, f32({{1, 1, size, size}}))[0].shape.h();
  };
  CHECK(pooled(7, window(3, 2, 0)) == 3);
  CHECK(pooled(8, window(3, 2, 0)) == 3);
  CHECK(pooled(8, window(3, 2, 1)) == 4);
  CHECK(pooled(3, window(3, 2, 0)) == 1);
  CHECK(pooled(1, window(3, 1, 1)) == 1);
}

TEST_CASE("shapes that do not fit are refused with the operation, the tensor and both shapes") {
  const Shape x{2, 4, 6, 6};
  const Window w = window(3, 1, 0);
  check_messages(
      ExitCode::config,
      {{Conv2d{w}, f32({{2, 4}, {5, 4, 3, 3}}), "Conv2d: input has shape [2,4], expected 4 dimensions"},
       {Conv2d{w}, f32({x, {5, 4}}), "Conv2d: weights has shape [5,4], expected 4 dimensions"},
       {Conv2d{w}, f32({x, {5, 3, 3, 3}}), "Conv2d: weights has shape [5,3,3,3], expected [5,4,3,3]"},
       {Conv2d{w, true}, f32({x, {5, 4, 3, 3}, {4}}), "Conv2d: bias has shape [4], expected [5]"},
       {Conv2d{w}, f32({{2, 4, 2, 6}, {5, 4, 3, 3}}),
        "Conv2d: a window of 3 does not fit into H = 2 (padding 0): the image is too small for the model"},
       {Conv2d{w, false, 3}, f32({x, {6, 1, 3, 3}}), "Conv2d: 3 groups do not divide 4 input and 6 output channels"},
       {Conv2dGradInput{w, x}, f32({{2, 5, 6, 6}, {5, 4, 3, 3}}),
        "Conv2dGradInput: output gradient has shape [2,5,6,6], expected [2,5,4,4]"},
       {Conv2dGradWeights{w}, f32({x, {2, 5, 6, 6}}),
        "Conv2dGradWeights: output gradient has shape [2,5,6,6], expected [2,5,4,4]"},
       {Linear{}, f32({x, {3, 4}, {3}}), "Linear: input has shape [2,4,6,6], expected 2 dimensions"},
       {Linear{}, f32({{2, 7}, {3, 6}, {3}}), "Linear: weights has shape [3,6], expected [3,7]"},
       {Linear{}, f32({{2, 7}, {3, 7}, {7}}), "Linear: bias has shape [7], expected [3]"},
       {EmbeddingBag{}, f32({{9, 5}, {2, 3}, {2, 4}, {5}}), "EmbeddingBag: values has shape [2,4], expected [2,3]"},
       {EmbeddingBag{}, f32({{9, 5}, {2, 3}, {2, 3}, {4}}), "EmbeddingBag: bias has shape [4], expected [5]"},
       {BatchNorm{}, f32({x, {3}, {4}}), "BatchNorm: scale has shape [3], expected [4]"},
       {BatchNorm{}, f32({{1, 4, 1, 1}, {4}, {4}}),
        "BatchNorm: one value per channel (input [1,4,1,1]): batch statistics need more; raise train.batch_size or the "
        "image size"},
       {BatchNormInference{}, f32({x, {4}, {4}, {4}, {5}}),
        "BatchNormInference: scale, shift, mean or variance has shape [5], expected [4]"},
       {BatchNormInferenceGrad{}, f32({x, x, {4}, {4}, {4}, {5}}),
        "BatchNormInferenceGrad: scale, mean, variance or shift has shape [5], expected [4]"},
       {SyncBatchNorm{.values = 144}, f32({x, {4}, {4}, {4}, {4}}), "SyncBatchNorm: sums has shape [4], expected [8]"},
       {Add{}, f32({x, {2, 4, 6, 5}}), "Add: summand has shape [2,4,6,5], expected [2,4,6,6]"},
       {Dropout{}, f32({x, {2}}), "Dropout: step has shape [2], expected [4]"},
       {AvgPool{window(7, 1, 0)}, f32({x}),
        "AvgPool: a window of 7 does not fit into H = 6 (padding 0): the image is too small for the model"},
       {MaxPool{window(3, 1, 0)}, f32({{2, 4, 6, 2}}),
        "MaxPool: a window of 3 does not fit into W = 2 (padding 0): the image is too small for the model"},
       {Concat{}, f32({x, {2, 4, 5, 6}}), "Concat: member has shape [2,4,5,6], expected [2,4,6,6]"},
       {SoftmaxCrossEntropy{}, f32({{2, 7}, {3}, {2}}), "SoftmaxCrossEntropy: labels has shape [3], expected [2]"},
       {SoftmaxCrossEntropy{}, f32({x, {2}, {2}}),
        "SoftmaxCrossEntropy: logits has shape [2,4,6,6], expected 2 dimensions"},
       {SoftmaxCrossEntropyGrad{}, f32({{2, 7}, {2}, {2}, {1}}),
        "SoftmaxCrossEntropyGrad: loss scale has shape [1], expected []"}});
}

TEST_CASE("a graph that breaks an operation's own rules is an internal error") {
  const Shape x{2, 4, 6, 6};
  check_messages(
      ExitCode::internal,
      {{Relu{}, f32({x, x}), "Relu: expects 1 inputs, has 2"},
       {Conv2d{window(3, 1, 0), true}, f32({x, {5, 4, 3, 3}}), "Conv2d: expects 3 inputs, has 2"},
       {SoftmaxCrossEntropyGrad{}, f32({{2, 7}}), "SoftmaxCrossEntropyGrad: expects 3 or 4 inputs, has 1"},
       {Concat{}, {}, "Concat: concatenates nothing"},
       {Slice{3, 2}, f32({x}), "Slice: channels 3+2 of [2,4,6,6]"},
       {Reshape{{2, 143}}, f32({x}), "Reshape: [2,4,6,6] cannot become [2,143]"},
       {Dropout{1.0}, f32({x, {4}}), "Dropout: dropout rate 1 is outside [0, 1)"},
       {LocalResponseNorm{.size = 4}, f32({x}), "LocalResponseNorm: an even window of 4 channels"},
       {BatchMoments{}, f32({{4}, {4}, {4}}), "BatchMoments: batch moments of 0 samples"},
       {SyncBatchNorm{.values = 1}, f32({x, {4}, {4}, {4}, {8}}), "SyncBatchNorm: batch statistics of 1 values"},
       {Conv2dStatistics{window(3, 1, 0), true}, f32({x, {5, 4, 3, 3}}), "Conv2dStatistics: expects 4 inputs, has 2"},
       {BatchNormOfSums{.values = 72, .samples = 2, .begin = 5}, f32({{8}, {8}, {4}, {4}, {4}}),
        "BatchNormOfSums: channels 5+4 of [8]"},
       {BatchNormStatistics{}, f32({x, {4}, {4}, {4}}), "BatchNormStatistics: batch statistics of 0 samples"}});
}
