// Batch norm over the samples of several ranks: two ranks of 2 and 5 samples against their joint batch of 7.
#include <algorithm>
#include <cmath>

#include "lockstep/base/random.h"
#include "test/backend/op_runner.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr int64_t kSamples[] = {2, 5};
constexpr int64_t kJoint = 7, kHeight = 3, kWidth = 5, kSpatial = kHeight * kWidth;

HostTensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, double offset = 0) {
  HostTensor tensor{shape, dtype, {}};
  RandomStream random(random_key(seed));
  for (int64_t i = 0; i < shape.elements(); ++i) tensor.values.push_back(static_cast<float>(random.normal() + offset));
  return tensor;
}

// Samples begin .. begin + count.
HostTensor part_of(const HostTensor& joint, int64_t begin, int64_t count) {
  const int64_t elements = joint.shape.elements() / joint.shape.n();
  HostTensor part{{count, joint.shape.c(), kHeight, kWidth}, joint.dtype, {}};
  part.values.assign(joint.values.begin() + begin * elements, joint.values.begin() + (begin + count) * elements);
  return part;
}

void add_to(std::vector<double>& sums, const std::vector<double>& values) {
  sums.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

void check_close(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(values[i] - expected[i]));
  }
  CHECK(difference <= tolerance * largest);
}

// `images`: the element type of x, dy and their like on a rank, cast from `dtype`.
void check(const Backend& backend, DType dtype, DType images, int64_t channels, bool relu, double tolerance) {
  const Shape shape{kJoint, channels, kHeight, kWidth};
  const HostTensor x = random_tensor(shape, dtype, 1, 3), dy = random_tensor(shape, dtype, 2);
  const HostTensor scale = random_tensor({channels}, dtype, 3, 2), shift = random_tensor({channels}, dtype, 4);
  const HostTensor running_mean = random_tensor({channels}, dtype, 5, 2);
  const double epsilon = 1e-3;
  // Values 0 to 3 are the inputs; 4 to 7 what BatchNorm makes, 8 to 10 its gradient.
  const HostTensor whole_inputs[] = {x, dy, scale, shift};
  const Step whole_steps[] = {{BatchNorm{epsilon, relu}, {0, 2, 3}},
                              {BatchNormGrad{epsilon, relu}, {0, 1, 2, 5, 6, 7}}};
  const auto whole = run_program(backend, whole_inputs, whole_steps).values;

  HostTensor sums{{2 * channels}, dtype, {}}, gradient_sums = sums;
  const int64_t values = kJoint * kSpatial;
  const bool casts = images != dtype;
  const int first = casts ? 9 : 7;
  const auto run_rank = [&](int64_t begin, int64_t count) {
    // Values 0 to 6 are the inputs; behind the casts, if any, come the rank's sums (`first`), the batch norm (4
    // values), gradients (3) and dx.
    const HostTensor inputs[] = {
        part_of(x, begin, count), part_of(dy, begin, count), scale, shift, running_mean, sums, gradient_sums};
    std::vector<Step> steps;
    if (casts) steps = {{Cast{images}, {0}}, {Cast{images}, {1}}};
    const int own_x = casts ? 7 : 0, own_dy = casts ? 8 : 1, mean = first + 2, var = first + 3, saved = first + 4;
    steps.push_back({SyncBatchNormSums{}, {own_x, 4}});
    steps.push_back({SyncBatchNorm{epsilon, relu, values}, {own_x, 2, 3, 4, 5}});
    steps.push_back({SyncBatchNormGradSums{epsilon, relu}, {own_x, own_dy, 2, mean, var, saved}});
    steps.push_back({SyncBatchNormGrad{epsilon, relu, values}, {own_x, own_dy, 2, mean, var, saved, 6}});
    return run_program(backend, inputs, steps).values;
  };
  // Each pass makes what the next one needs: the sums over ranks, forward and then backward.
  sums.values.assign(static_cast<size_t>(2 * channels), 1);
  gradient_sums.values = sums.values;
  std::vector<double> y, dx, dscale, dshift;
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<double> new_sums, new_gradient_sums;
    for (std::vector<double>* of : {&y, &dx, &dscale, &dshift}) of->clear();
    int64_t begin = 0;
    for (const int64_t count : kSamples) {
      const auto all = run_rank(begin, count);
      const std::span result = std::span(all).subspan(static_cast<size_t>(first));
      begin += count;
      add_to(new_sums, result[0].values);
      add_to(new_gradient_sums, result[7].values);
      y.insert(y.end(), result[1].values.begin(), result[1].values.end());
      dx.insert(dx.end(), result[8].values.begin(), result[8].values.end());
      add_to(dscale, result[5].values);
      add_to(dshift, result[6].values);
      if (pass == 2) {
        check_close(result[2].values, whole[5].values, tolerance);
        check_close(result[3].values, whole[6].values, tolerance);
      }
    }
    sums.values = new_sums;
    gradient_sums.values = new_gradient_sums;
  }
  check_close(y, whole[4].values, tolerance);
  check_close(dx, whole[8].values, tolerance);
  check_close(dscale, whole[9].values, tolerance);
  check_close(dshift, whole[10].values, tolerance);
}

}  // namespace

TEST_CASE("two ranks' synchronized batch norm is the batch norm of their joint batch, and so is its gradient") {
  for (const int64_t channels : {5, 16, 19, 32}) {
    for (const bool relu : {false, true}) {
      INFO(channels << " channels" << (relu ? ", ReLU" : ""));
      check(*make_backend("reference", {.threads = 2}), DType::f64, DType::f64, channels, relu, 1e-12);
      for (std::string_view name : backend_names()) {
        INFO(name);
        const auto backend = make_backend(name, {.threads = 2});
        check(*backend, DType::f32, DType::f32, channels, relu, 1e-5);
        if (name != "cuda") continue;
        // A ReLU of rounded images lets others through.
        if (!relu) check(*backend, DType::f32, DType::bf16, channels, relu, 2e-2);
        if (!relu) check(*backend, DType::f32, DType::f16, channels, relu, 3e-3);
      }
    }
  }
}

TEST_CASE("values that are all equal stay finite in a synchronized batch norm") {
  for (std::string_view name : backend_names()) {
    const auto backend = make_backend(name, {});
    const HostTensor x{{2, 1, 1, 2}, DType::f32, {7, 7, 7, 7}}, one{{1}, DType::f32, {1}}, zero{{1}, DType::f32, {0}};
    const HostTensor inputs[] = {x, one, zero};
    const Step steps[] = {
        {SyncBatchNormSums{}, {0, 2}}, {SumOverRanks{}, {3}}, {SyncBatchNorm{1e-3, true, 4}, {0, 1, 2, 2, 4}}};
    const auto result = run_program(*backend, inputs, steps).values;
    CHECK(result[5].values == std::vector<double>(4, 0.0));
    CHECK(result[6].values[0] == 7);
    CHECK(result[7].values[0] == 0);
  }
}
