// Convolutions fused with the parts of a batch norm against the operations one by one, on the reference backend in
// float64: the reference backend's own exactly, those of a GPU in fp16 within the rounding of what is rounded.
#include <cmath>

#include "lockstep/base/random.h"
#include "test/backend/check_case.h"
#include "test/backend/fused_geometries.h"
#include "test/backend/op_runner.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr double kEpsilon = 1e-3;

// Multiples of 1 / `parts`: below 8, those of 1/256 are numbers of fp16, too, and those of 1/16 of bf16.
HostTensor random_tensor(const Shape& shape, uint64_t seed, double mean = 0, double deviation = 1, double parts = 256) {
  HostTensor tensor{shape, DType::f64, {}};
  RandomStream random(random_key(seed));
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const double value = std::clamp(mean + deviation * random.normal(), -7.5, 7.5);
    tensor.values.push_back(std::round(value * parts) / parts);
  }
  return tensor;
}

// conv - norm with ReLU - conv, forward and backward. Numbers of values:
//   0 image, 1 weights, 2 scale, 3 shift, 4 running mean, 5 weights of the second convolution, 6 gradient of its output
struct Sandwich {
  Shape image, x, y;
  Window first{3, 3, 1, 1, 1, 1}, second;
  std::vector<HostTensor> inputs;

  explicit Sandwich(const Geometry& g) : image{g.x.n(), 8, g.x.h(), g.x.w()}, x(g.x), second(g.window) {
    const Shape weights{x.c(), image.c(), 3, 3}, c{x.c()};
    const Shape last{g.outputs, x.c(), second.kernel_h, second.kernel_w};
    y = infer(Conv2d{second}, std::vector<TensorDesc>{{x, DType::f64, {}}, {last, DType::f64, {}}})[0].shape;
    inputs = {random_tensor(image, 1),     random_tensor(weights, 2, 0, 0.1), random_tensor(c, 3, 1, 0.2),
              random_tensor(c, 4, 0, 0.2), random_tensor(c, 5, 0, 0.2),       random_tensor(last, 6, 0, 0.1),
              random_tensor(y, 7)};
  }

  std::vector<Step> plain() const {
    return {{Conv2d{first}, {0, 1}},                                  // 7: x
            {BatchNorm{kEpsilon, true}, {7, 2, 3}},                   // 8: z, mean, var, saved
            {BatchMoments{x.n()}, {9, 10, 4}},                        // 12: first, second
            {Conv2d{second}, {8, 5}},                                 // 14: y
            {Conv2dGradWeights{second}, {8, 6}},                      // 15
            {Conv2dGradInput{second, x}, {6, 5}},                     // 16: dz
            {BatchNormGrad{kEpsilon, true}, {7, 16, 2, 9, 10, 11}}};  // 17: dx, dscale, dshift
  }

  // `type`: of images and weights, to which those inputs are cast first.
  std::vector<Step> fused(DType type) const {
    const bool casts = type != DType::f64;
    std::vector<Step> steps;
    if (casts) steps = {{Cast{type}, {0}}, {Cast{type}, {1}}, {Cast{type}, {5}}, {Cast{type}, {6}}};
    const int a = casts ? 7 : 0, w = casts ? 8 : 1, w2 = casts ? 9 : 5, dy = casts ? 10 : 6, n = casts ? 11 : 7;
    const BatchNormOfSums vectors{.epsilon = kEpsilon, .values = x.n() * x.h() * x.w(), .samples = x.n(), .to = type};
    const std::vector<Step> more{
        {Conv2dStatistics{first}, {a, w}},                                           // n: x, sum, squares
        {vectors, {n + 1, n + 2, 2, 3, 4}},                                          // n+3: mean, var, inverse, factor,
                                                                                     // slope, offset, first, second
        {Conv2dStatistics{second, true}, {n, w2, n + 7, n + 8}},                     // n+11: y, sum, squares
        {Conv2dNormalizedGradWeights{second}, {n, dy, n + 7, n + 8}},                // n+14
        {Conv2dGradInputNorm{second, x}, {dy, w2, n, 2, 3, n + 3, n + 5}},           // n+15: dz, dscale, dshift, by_dz,
                                                                                     // by_x, constant
        {BatchNormGradApply{}, {n + 15, n, n + 18, n + 19, n + 20}},                 // n+21: dx
        {BatchNormInference{kEpsilon, true}, {n, 2, 3, n + 3, n + 4}},               // n+22: z
        {Conv2dGradInput{second, x}, {dy, w2}},                                      // n+23
        {BatchNormOfSumsGrad{kEpsilon, true}, {n, n + 23, 3, n + 3, n + 4, n + 6}},  // n+24: dx, dscale, dshift
        {BatchNormStatistics{kEpsilon, x.n(), type}, {n, 2, 3, 4}}};                 // n+27: as n+3
    steps.insert(steps.end(), more.begin(), more.end());
    return steps;
  }

  // What both compute: the value of the plain program, and of the fused one behind its first convolution's output.
  static constexpr std::pair<size_t, size_t> kSame[] = {{7, 0},   {8, 22},  {9, 3},   {10, 4},  {12, 9},  {13, 10},
                                                        {14, 11}, {15, 14}, {17, 21}, {18, 16}, {19, 17}, {17, 24},
                                                        {18, 25}, {19, 26}, {9, 27},  {10, 28}, {12, 33}, {13, 34}};
};

// Checks that the fused program computes what the plain one does.
void check_same(const Backend& backend, const Geometry& geometry, DType type, double bound) {
  const Sandwich sandwich(geometry);
  const auto expected = run_program(*make_backend("reference", {}), sandwich.inputs, sandwich.plain()).values;
  std::vector<HostTensor> inputs = sandwich.inputs;
  if (type != DType::f64) {
    for (HostTensor& input : inputs) input.dtype = DType::f32;
  }
  const auto actual = run_program(backend, inputs, sandwich.fused(type)).values;
  const size_t first = type == DType::f64 ? 7 : 11;
  for (const auto& [plain, fused] : Sandwich::kSame) {
    INFO(geometry.x.to_string() << " in " << dtype_name(type) << ": value " << plain << " is " << fused);
    CHECK(relative_error(actual[first + fused].values, expected[plain].values) < bound);
  }
  const auto &y = actual[first + 11].values, &sums = actual[first + 12].values, &squares = actual[first + 13].values;
  std::vector<double> own_sums(sums.size()), own_squares(sums.size());
  const auto plane = static_cast<size_t>(sandwich.y.h() * sandwich.y.w());
  for (size_t i = 0; i < y.size(); ++i) {
    own_sums[i / plane % sums.size()] += y[i];
    own_squares[i / plane % sums.size()] += y[i] * y[i];
  }
  // A library may sum y before or after it is rounded.
  CHECK(relative_error(sums, own_sums) < bound / 16);
  CHECK(relative_error(squares, own_squares) < bound / 16);
}

}  // namespace

TEST_CASE("convolutions fused with the parts of a batch norm compute what the operations do one by one") {
  const auto reference = make_backend("reference", {.threads = 2});
  for (const Geometry& geometry : kGeometries) check_same(*reference, geometry, DType::f64, 1e-11);
}

// In fp16 x and dz are rounded to 2^-11 of themselves, and slope and offset once more, beside the products' own
// rounding: a value is off by some four roundings. A gradient that passes a ReLU near 0 may pass or not, which adds as
// much.
TEST_CASE("a GPU computes fused convolutions in fp16 as the reference backend does one by one", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const auto gpu = make_backend("cuda", {});
  for (const Geometry& geometry : kGeometries) {
    check_case(geometry.x.to_string(), [&] { check_same(*gpu, geometry, DType::f16, 0x1p-11 * 16); });
  }
}

namespace {

// A norm with ReLU before a max pool, forward and backward, in one operation each way and one by one.
void check_pool(const Backend& backend, const Shape& x, const Window& window, DType type, double bound,
                bool pooled_sums = false) {
  const Shape y = infer(MaxPool{window}, std::vector<TensorDesc>{{x, DType::f64, {}}})[0].shape, c{x.c()};
  // Scales of either sign, and for sums of what was pooled some near 1.
  const HostTensor scale = pooled_sums ? random_tensor(c, 3, 1, 0.2) : random_tensor(c, 3);
  std::vector<HostTensor> inputs{random_tensor(x, 1, 1, 1, 16), random_tensor(y, 2, 0, 1, 16), scale,
                                 random_tensor(c, 4), random_tensor(c, 5)};
  const std::vector<Step> plain{{BatchNorm{kEpsilon, true}, {0, 2, 3}},                 // 5: z, mean, var, saved
                                {MaxPool{window}, {5}},                                 // 9: y, saved
                                {MaxPoolGrad{window, x}, {1, 10}},                      // 11: dz
                                {BatchNormGrad{kEpsilon, true}, {0, 11, 2, 6, 7, 8}}};  // 12: dx, dscale, dshift
  const auto expected = run_program(*make_backend("reference", {}), inputs, plain).values;
  if (type != DType::f64) {
    for (HostTensor& input : inputs) input.dtype = DType::f32;
  }
  const bool casts = type != DType::f64 && type != DType::f32;
  std::vector<Step> fused;
  if (casts) fused = {{Cast{type}, {0}}, {Cast{type}, {1}}};
  const int image = casts ? 5 : 0, dy = casts ? 6 : 1, n = casts ? 7 : 5;
  fused.push_back({BatchNormStatistics{kEpsilon, x.n(), type}, {image, 2, 3, 4}});
  fused.push_back({BatchNormMaxPool{window}, {image, 3, n, n + 3}});
  std::vector<int> grad{image, dy, 3, n, n + 1, n + 3, n + 9};
  if (pooled_sums) grad.push_back(n + 8);
  fused.push_back({BatchNormMaxPoolGrad{window, kEpsilon, pooled_sums}, std::move(grad)});
  const std::vector<Step> sums{{MaxPool{window}, {image}},                                // n+13
                               {MaxPoolGrad{window, x}, {dy, n + 14}},                    // n+15
                               {Add{}, {n + 15, image, image}},                           // n+16
                               {MaxPoolGradSum{window, x}, {dy, n + 14, image, image}}};  // n+17
  fused.insert(fused.end(), sums.begin(), sums.end());
  const auto actual = run_program(backend, inputs, fused).values;
  const auto first = static_cast<size_t>(n);
  CHECK(relative_error(actual[first + 17].values, actual[first + 16].values) < bound);
  for (const auto& [one, all] : {std::pair{9, 8}, {12, 10}, {13, 11}, {14, 12}}) {
    INFO(x.to_string() << " in " << dtype_name(type) << ": value " << one);
    const auto& value = actual[first + static_cast<size_t>(all)].values;
    CHECK(relative_error(value, expected[static_cast<size_t>(one)].values) < bound);
  }
}

const std::pair<Shape, Window> kPools[] = {
    {{2, 16, 9, 9}, {3, 3, 2, 2, 0, 0}}, {{3, 7, 8, 5}, {3, 3, 2, 2, 1, 1}}, {{1, 24, 6, 6}, {2, 3, 1, 2, 0, 1}}};

}  // namespace

TEST_CASE("a max pool that normalizes its image computes what the operations do one by one") {
  const auto reference = make_backend("reference", {});
  for (const auto& [x, window] : kPools) check_pool(*reference, x, window, DType::f64, 1e-12);
}

// Images are exact in every type, so that the same positions are the maxima; results are rounded once.
TEST_CASE("a GPU computes a max pool that normalizes its image in every type", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const auto gpu = make_backend("cuda", {});
  const auto check = [&](const Shape& x, const Window& window, DType type, double bound, bool pooled_sums = false) {
    check_case(x.to_string() + " in " + std::string(dtype_name(type)),
               [&] { check_pool(*gpu, x, window, type, bound, pooled_sums); });
  };
  for (const auto& [x, window] : kPools) {
    check(x, window, DType::f32, 1e-5);
    check(x, window, DType::f16, 0x1p-11);
    check(x, window, DType::bf16, 0x1p-8);
    check(x, window, DType::f32, 1e-5, true);
    check(x, window, DType::f16, 0x1p-10, true);  // y is rounded before it is summed, too
    check(x, window, DType::bf16, 0x1p-7, true);
  }
}

namespace {

// The gradient of two norms side by side, from what they normalized and from their images.
void check_normalized(const Backend& backend, DType type, double bound) {
  const Shape x{3, 24, 5, 4}, both{3, 48, 5, 4}, c{24};
  std::vector<HostTensor> inputs{
      random_tensor(x, 1, 1, 2, 16), random_tensor(x, 2, 0, 1, 16), random_tensor(both, 3, 0, 1, 16),
      random_tensor(c, 4),           random_tensor(c, 5),           {c, DType::f64, std::vector<double>(24, 1.0)}};
  inputs.push_back({{48}, DType::f64, inputs[3].values});  // 6: the shifts of both
  inputs[6].values.insert(inputs[6].values.end(), inputs[4].values.begin(), inputs[4].values.end());
  const std::vector<Step> plain{{BatchNorm{kEpsilon, true}, {0, 5, 3}},                    // 7: z, mean, var, saved
                                {BatchNorm{kEpsilon, true}, {1, 5, 4}},                    // 11
                                {Slice{0, 24}, {2}},                                       // 15
                                {Slice{24, 24}, {2}},                                      // 16
                                {BatchNormGrad{kEpsilon, true}, {0, 15, 5, 8, 9, 10}},     // 17: dx, dscale, dshift
                                {BatchNormGrad{kEpsilon, true}, {1, 16, 5, 12, 13, 14}}};  // 20
  const auto expected = run_program(*make_backend("reference", {}), inputs, plain).values;
  if (type != DType::f64) {
    for (HostTensor& input : inputs) input.dtype = DType::f32;
  }
  std::vector<Step> fused;
  int image[3] = {0, 1, 2};
  const bool casts = type != DType::f64 && type != DType::f32;
  for (int i = 0; i < 3 && casts; ++i) {
    fused.push_back({Cast{type}, {i}});
    image[i] = 7 + i;
  }
  const int n = casts ? 10 : 7;
  const std::vector<Step> more{
      {BatchNormStatistics{kEpsilon, 3, type}, {image[0], 5, 3, 3}},     // n: mean, var, inverse, factor, ...
      {BatchNormStatistics{kEpsilon, 3, type}, {image[1], 5, 4, 4}},     // n+8
      {BatchNormInference{kEpsilon, true}, {image[0], 5, 3, n, n + 1}},  // n+16
      {BatchNormInference{kEpsilon, true}, {image[1], 5, 4, n + 8, n + 9}},
      {Concat{}, {n + 16, n + 17}},                  // n+18
      {BatchNormGradSums{}, {n + 18, image[2], 6}},  // n+19: dshift, by_y, constant
      {Slice{0, 24}, {image[2]}},                    // n+22
      {Slice{24, 24}, {image[2]}},
      {BatchNormGradOfSums{.relu = true}, {image[0], n + 22, 3, n, n + 3, n + 20, n + 21}},  // n+24
      {BatchNormGradOfSums{.relu = true, .begin = 24}, {image[1], n + 23, 4, n + 8, n + 11, n + 20, n + 21}}};
  fused.insert(fused.end(), more.begin(), more.end());
  const auto actual = run_program(backend, inputs, fused).values;
  const auto first = static_cast<size_t>(n);
  INFO(dtype_name(type));
  CHECK(relative_error(actual[first + 24].values, expected[17].values) < bound);
  CHECK(relative_error(actual[first + 25].values, expected[20].values) < bound);
  std::vector<double> dshift = expected[19].values;
  dshift.insert(dshift.end(), expected[22].values.begin(), expected[22].values.end());
  CHECK(relative_error(actual[first + 19].values, dshift) < bound);
}

}  // namespace

namespace {

// The gradient of a norm before a max pool, from sums over what was pooled, and that of a pool with sums for norms.
void check_normalized_pool(const Backend& backend, DType type, double bound) {
  const Shape x{2, 16, 9, 7}, c{16};
  const Window window{3, 3, 2, 2, 1, 0};
  const Shape y = infer(MaxPool{window}, std::vector<TensorDesc>{{x, DType::f64, {}}})[0].shape;
  std::vector<HostTensor> inputs{random_tensor(x, 1, 1, 1, 16),
                                 random_tensor(y, 2, 0, 1, 16),
                                 {c, DType::f64, std::vector<double>(16, 1.0)},
                                 random_tensor(c, 4)};
  const std::vector<Step> plain{{BatchNorm{kEpsilon, true}, {0, 2, 3}},                 // 4: z, mean, var, saved
                                {MaxPool{window}, {4}},                                 // 8: y, saved
                                {MaxPoolGrad{window, x}, {1, 9}},                       // 10: dz
                                {BatchNormGrad{kEpsilon, true}, {0, 10, 2, 5, 6, 7}}};  // 11: dx, dscale, dshift
  const auto expected = run_program(*make_backend("reference", {}), inputs, plain).values;
  if (type != DType::f64) {
    for (HostTensor& input : inputs) input.dtype = DType::f32;
  }
  std::vector<Step> steps;
  const bool casts = type != DType::f64 && type != DType::f32;
  if (casts) steps = {{Cast{type}, {0}}, {Cast{type}, {1}}};
  const int image = casts ? 4 : 0, dy = casts ? 5 : 1, n = casts ? 6 : 4;
  const std::vector<Step> more{
      {BatchNormStatistics{kEpsilon, 2, type}, {image, 2, 3, 3}},  // n: mean, var, inverse, factor, ...
      {BatchNormMaxPool{window}, {image, 3, n, n + 3}},            // n+8: y, saved
      {BatchNormGradSums{}, {n + 8, dy, 3}},                       // n+10: dshift, by_y, constant
      {BatchNormMaxPoolGradOfSums{window}, {image, dy, 3, n, n + 3, n + 9, n + 11, n + 12}},  // n+13
      {MaxPool{window}, {image}},                                                             // n+14: y, saved
      {MaxPoolGradSum{window, x}, {dy, n + 15, image, image}},                                // n+16
      {BatchNormGradSums{}, {image, n + 16, 3}},                                // n+17: dshift, by_y, constant
      {MaxPoolGradNormSums{window, x}, {dy, n + 15, image, 3, image, image}}};  // n+20: dx, dshift, by_y, constant
  steps.insert(steps.end(), more.begin(), more.end());
  const auto actual = run_program(backend, inputs, steps).values;
  const auto value = [&](int i) { return actual[static_cast<size_t>(n + i)].values; };
  INFO(dtype_name(type));
  CHECK(relative_error(value(10), expected[13].values) < bound);
  CHECK(relative_error(value(13), expected[11].values) < bound);
  for (const int i : {0, 1, 2, 3}) CHECK(relative_error(value(20 + i), value(16 + i)) < bound);
}

}  // namespace

TEST_CASE("sums over what norms make give the gradients that sums over their images give") {
  check_normalized(*make_backend("reference", {}), DType::f64, 1e-12);
  check_normalized_pool(*make_backend("reference", {}), DType::f64, 1e-12);
}

namespace {

// An average pool that sums for the norm behind it, and both one by one. Its sums are those of what it wrote.
void check_averaged(const Backend& backend, DType type, double bound) {
  const Shape x{2, 24, 7, 6}, c{24};
  std::vector<HostTensor> inputs{random_tensor(x, 1, 1, 1, 16), random_tensor(c, 2), random_tensor(c, 3),
                                 random_tensor(c, 4)};
  if (type != DType::f64) {
    for (HostTensor& input : inputs) input.dtype = DType::f32;
  }
  for (const Window& window : {Window{3, 3, 1, 1, 1, 1}, Window{3, 2, 2, 1, 0, 0}}) {
    std::vector<Step> steps;
    const bool casts = type != DType::f64 && type != DType::f32;
    if (casts) steps.push_back({Cast{type}, {0}});
    const int image = casts ? 4 : 0, n = casts ? 5 : 4;
    const BatchNormStatistics vectors{.epsilon = kEpsilon, .samples = 2, .to = type};
    steps.push_back({AvgPool{window, false}, {image}});                                        // n
    steps.push_back({vectors, {n, 1, 2, 3}});                                                  // n+1
    steps.push_back({AvgPoolStatistics{window, false, kEpsilon, 2, type}, {image, 1, 2, 3}});  // n+9
    const auto values = run_program(backend, inputs, steps).values;
    INFO(dtype_name(type));
    for (size_t i = 0; i < 9; ++i) {
      const auto &one = values[static_cast<size_t>(n) + i].values,
                 &both = values[static_cast<size_t>(n) + 9 + i].values;
      CHECK(relative_error(both, one) <= (i == 0 ? 0 : bound));
    }
  }
}

}  // namespace

TEST_CASE("an average pool sums for the norm behind it") {
  check_averaged(*make_backend("reference", {}), DType::f64, 0);
}

// The sums are shifted by another value, so that they are rounded in another way; vectors may be rounded to 16 bits.
TEST_CASE("an average pool on a GPU sums for the norm behind it in every type", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const auto gpu = make_backend("cuda", {});
  const auto check = [&](DType type, double bound) {
    check_case(std::string(dtype_name(type)), [&] { check_averaged(*gpu, type, bound); });
  };
  check(DType::f32, 1e-5);
  check(DType::f16, 0x1p-11);
  check(DType::bf16, 0x1p-8);
}

// y is rounded before it is summed, and the result once.
TEST_CASE("a GPU sums over what norms make in every type", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const auto gpu = make_backend("cuda", {});
  const auto check = [&](DType type, double bound) {
    check_case(std::string(dtype_name(type)), [&] { check_normalized(*gpu, type, bound); });
    check_case(std::string(dtype_name(type)) + ", pooled", [&] { check_normalized_pool(*gpu, type, bound); });
  };
  check(DType::f32, 1e-5);
  check(DType::f16, 0x1p-10);
  check(DType::bf16, 0x1p-7);
}

TEST_CASE("a slice of a convolution's sums gives the vectors of its batch norm") {
  const auto reference = make_backend("reference", {});
  const HostTensor sums = random_tensor({6}, 1), squares = random_tensor({6}, 2, 7, 0.1), scale = random_tensor({2}, 3);
  HostTensor some_sums{{2}, DType::f64, {sums.values[3], sums.values[4]}};
  HostTensor some_squares{{2}, DType::f64, {squares.values[3], squares.values[4]}};
  const HostTensor inputs[] = {sums, squares, scale, some_sums, some_squares};
  const BatchNormOfSums slice{.values = 9, .samples = 3, .begin = 3, .to = DType::f64};
  BatchNormOfSums whole = slice;
  whole.begin = 0;
  const Step steps[] = {{slice, {0, 1, 2, 2, 2}}, {whole, {3, 4, 2, 2, 2}}};
  const auto values = run_program(*reference, inputs, steps).values;
  for (size_t i = 0; i < 8; ++i) CHECK((values[5 + i].values == values[13 + i].values));
}

// With r the ratio of mean and deviation, sum and squares are rounded to float32 once each at the end, so that the
// error of var = squares / n - mean^2 is at most 2^-24 (E[y^2] + 2 mean^2) <= 3 * 2^-24 (1 + r^2) var. It cancels: at r
// = 1000 a fifth of the variance may be wrong. A channel of a convolution's output has r near 1, and fp16 keeps no more
// than 11 bits of y anyway, so that at r = 2048 its own rounding is as large as the deviation.
TEST_CASE("the variance from sums of squares is as exact as the ratio of mean and deviation allows") {
  constexpr int64_t kValues = 4096;
  const auto reference = make_backend("reference", {});
  for (const double ratio : {0.0, 1.0, 10.0, 100.0, 1000.0}) {
    RandomStream random(random_key(static_cast<uint64_t>(ratio)));
    std::vector<double> y(kValues);
    double sum = 0, squares = 0;
    for (double& value : y) {
      value = ratio + random.normal();
      sum += value;
      squares += value * value;
    }
    double var = 0;
    const double mean = sum / kValues;
    for (const double value : y) var += (value - mean) * (value - mean) / kValues;
    const auto vector = [](double value) { return HostTensor{{1}, DType::f32, {value}}; };
    const HostTensor inputs[] = {vector(sum), vector(squares), vector(1), vector(0)};
    const Step steps[] = {{BatchNormOfSums{.values = kValues, .samples = 1}, {0, 1, 2, 3, 3}}};
    const auto values = run_program(*reference, inputs, steps).values;
    INFO("ratio " << ratio);
    CHECK(std::abs(values[4].values[0] - mean) <= 0x1p-23 * std::abs(mean) + 1e-7);
    CHECK(std::abs(values[5].values[0] - var) <= 3 * 0x1p-24 * (1 + mean * mean / var) * var + 0x1p-24 * var);
  }
}

#ifndef LOCKSTEP_KERNELS_ON_HOST
TEST_CASE("the cpu backend has none of the fused operations, and says so") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  const std::vector<TensorDesc> inputs{{{2, 8, 4, 4}, DType::f32, {}}, {{8, 8, 1, 1}, DType::f32, {}}};
  const Op op = Conv2dStatistics{};
  const auto outputs = infer(op, inputs);
  CHECK_FALSE(cpu->can(op, inputs, outputs));
  CHECK_THROWS_WITH(cpu->compile(op, inputs, outputs), ContainsSubstring("the cpu backend has no Conv2dStatistics"));
}
#endif
