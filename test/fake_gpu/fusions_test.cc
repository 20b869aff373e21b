// Convolutions that cuDNN fuses with the parts of a batch norm: planned by cuDNN, computed by the fake device from what
// was drawn, and compared with the reference backend's operations one by one.
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <random>

#include "test/backend/fused_geometries.h"
#include "test/backend/op_runner.h"
#include "test/catch.h"
#include "test/fake_gpu/order.h"
#include "test/gpu_lab/engine_graph.h"

using namespace lockstep;
using namespace lockstep::lab;
using cuda::ConvProblem;
using fake_gpu::InOrder;
using test::Geometry;
using test::HostTensor;
using test::kGeometries;

namespace {

constexpr double kEpsilon = 1e-3;

float half(double value) { return __half2float(__float2half_rn(static_cast<float>(value))); }

HostTensor noise(const Shape& shape, unsigned seed, double least = -1, double most = 1) {
  HostTensor tensor{.shape = shape};
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> distribution(least, most);
  for (int64_t i = 0; i < shape.elements(); ++i) tensor.values.push_back(half(distribution(random)));
  return tensor;
}

// Device memory with a tensor in it, channels last where it is an image.
class Memory {
 public:
  Memory(const Shape& shape, DType dtype) : shape_(shape), dtype_(dtype) {
    REQUIRE(cudaMalloc(&data_, bytes()) == cudaSuccess);
  }
  Memory(const HostTensor& tensor, DType dtype) : Memory(tensor.shape, dtype) {
    std::vector<std::byte> packed(bytes());
    for_each_place([&](size_t plain, size_t last) {
      const auto value = static_cast<float>(tensor.values[plain]);
      if (dtype == DType::f32) {
        reinterpret_cast<float*>(packed.data())[last] = value;
      } else {
        reinterpret_cast<__half*>(packed.data())[last] = __float2half_rn(value);
      }
    });
    REQUIRE(cudaMemcpy(data_, packed.data(), packed.size(), cudaMemcpyDefault) == cudaSuccess);
  }
  Memory(Memory&& other) noexcept
      : shape_(other.shape_), dtype_(other.dtype_), data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { (void)cudaFree(data_); }

  void* data() const { return data_; }
  std::vector<double> values() const {
    std::vector<std::byte> packed(bytes());
    REQUIRE(cudaMemcpy(packed.data(), data_, packed.size(), cudaMemcpyDefault) == cudaSuccess);
    std::vector<double> result(static_cast<size_t>(shape_.elements()));
    for_each_place([&](size_t plain, size_t last) {
      result[plain] = dtype_ == DType::f32 ? reinterpret_cast<const float*>(packed.data())[last]
                                           : __half2float(reinterpret_cast<const __half*>(packed.data())[last]);
    });
    return result;
  }

 private:
  size_t bytes() const { return static_cast<size_t>(shape_.elements()) * dtype_bytes(dtype_); }
  // Calls body(index in the plain order, index in memory).
  template <class Body>
  void for_each_place(const Body& body) const {
    const int64_t channels = shape_.rank() == 4 ? shape_[1] : 1;
    const int64_t pixels = shape_.rank() == 4 ? shape_[2] * shape_[3] : 1;
    for (int64_t i = 0; i < shape_.elements(); ++i) {
      const int64_t outer = i / (channels * pixels), channel = i / pixels % channels, place = i % pixels;
      body(static_cast<size_t>(i), static_cast<size_t>((outer * pixels + place) * channels + channel));
    }
  }

  Shape shape_;
  DType dtype_;
  void* data_ = nullptr;
};

// A fused convolution with memory for all of its tensors.
struct FusedPlan {
  ConvProblem problem;
  Fusion fusion;
  std::map<int64_t, Memory> memory;
  cudnnHandle_t handle = nullptr;
  EngineGraph graph;
  int64_t engine = 0;
  size_t workspace_bytes = 0;

  FusedPlan(const ConvProblem& p, Fusion f) : problem(p), fusion(f) {
    REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
    graph.draw(problem, fusion);
    REQUIRE(graph.find_engines(handle));
    while (graph.compiles_at_run_time(engine) || graph.build_plan_at_index(engine).is_bad()) ++engine;
    workspace_bytes = static_cast<size_t>(graph.get_workspace_size_plan_at_index(engine));
    memory.emplace(kY, Memory(p.y, DType::f16));
    memory.emplace(kWeights, Memory(p.weights, DType::f16));
    for (const auto id : {kX, kGradient}) memory.emplace(id, Memory(p.x, DType::f16));
    for (const auto id : {kSum, kSquares}) memory.emplace(id, Memory(Shape{p.y.c()}, DType::f32));
    for (int64_t id = kMean; id < kAfterLast; ++id) memory.emplace(id, Memory(Shape{p.x.c()}, DType::f32));
  }
  ~FusedPlan() { (void)cudnnDestroy(handle); }

  void set(int64_t id, const HostTensor& tensor) {
    memory.erase(id);
    memory.emplace(id, Memory(tensor, id <= kOffset ? DType::f16 : DType::f32));
  }
  std::vector<double> values(int64_t id) const { return memory.at(id).values(); }

  // Empty, or why cuDNN refuses.
  std::string run(const std::map<int64_t, void*>& instead = {}, size_t workspace_less = 0) {
    std::unordered_map<int64_t, void*> pointers;
    for (const auto& [id, tensor] : memory) pointers[id] = tensor.data();
    for (const auto& [id, data] : instead) pointers[id] = data;
    const Memory workspace(Shape{static_cast<int64_t>(workspace_bytes - workspace_less) + 1}, DType::u8);
    auto status = graph.execute_plan_at_index(
        handle, pointers, workspace_less > 0 && workspace_bytes == workspace_less ? nullptr : workspace.data(), engine);
    const cudaError_t fault = cudaDeviceSynchronize();
    INFO(cudaGetErrorString(fault));
    REQUIRE(fault == cudaSuccess);
    if (status.is_good()) return {};
    return status.get_message();
  }
};

// Differences beside the size of the values, which fp16 rounds to 11 bits.
void check_close(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::isnan(values[i]) ? INFINITY : std::abs(values[i] - expected[i]));
  }
  CHECK(largest > 0);
  CHECK(error <= tolerance * largest);
}

constexpr double kRounded = 2e-3, kRoundedTwice = 6e-3;

ConvProblem make_problem(Fusion fusion, const Shape& x, int64_t outputs, const Window& w) {
  const int64_t height = (x.h() + 2 * w.pad_h - w.kernel_h) / w.stride_h + 1;
  const int64_t width = (x.w() + 2 * w.pad_w - w.kernel_w) / w.stride_w + 1;
  return {.kind = kind_of(fusion),
          .dtype = DType::f16,
          .window = w,
          .x = x,
          .weights = Shape{outputs, x.c(), w.kernel_h, w.kernel_w},
          .y = Shape{x.n(), outputs, height, width}};
}

// What the reference backend makes of a batch norm with ReLU before a convolution, and of the way back.
struct Reference {
  HostTensor x, weights, dy, scale, shift;
  test::ProgramResult result;

  explicit Reference(const ConvProblem& p)
      : x(noise(p.x, 1, -2, 2)),
        weights(noise(p.weights, 2)),
        dy(noise(p.y, 3)),
        scale(noise(Shape{p.x.c()}, 4, 0.5, 1.5)),
        shift(noise(Shape{p.x.c()}, 5)) {
    const std::vector<test::Step> steps{
        {BatchNorm{kEpsilon, true}, {0, 3, 4}},                 // 5: z, 6, 7, 8
        {Conv2d{p.window}, {5, 1}},                             // 9: y
        {Conv2dGradWeights{p.window}, {5, 2}},                  // 10
        {Conv2dGradInput{p.window, p.x}, {2, 1}},               // 11
        {BatchNormGrad{kEpsilon, true}, {0, 11, 3, 6, 7, 8}}};  // 12: dx, dscale, dshift
    const std::vector<HostTensor> inputs{x, weights, dy, scale, shift};
    result = test::run_program(*make_backend("reference", {.threads = 1}), inputs, steps);
  }
  const std::vector<double>& value(size_t i) const { return result.values[i].values; }

  // slope = scale / deviation and offset = shift - mean slope.
  void set_prologue(FusedPlan& fused) const {
    HostTensor slope = scale, offset = shift;
    for (size_t c = 0; c < scale.values.size(); ++c) {
      slope.values[c] = half(scale.values[c] / std::sqrt(value(7)[c] + kEpsilon));
      offset.values[c] = half(shift.values[c] - value(6)[c] * slope.values[c]);
    }
    fused.set(kSlope, slope);
    fused.set(kOffset, offset);
  }
  void set_norm(FusedPlan& fused) const {
    HostTensor mean = scale, inverse = scale;
    for (size_t c = 0; c < scale.values.size(); ++c) {
      mean.values[c] = value(6)[c];
      inverse.values[c] = 1 / std::sqrt(value(7)[c] + kEpsilon);
    }
    fused.set(kMean, mean);
    fused.set(kInverseDeviation, inverse);
    fused.set(kScale, scale);
    fused.set(kShift, shift);
  }
};

// Sums of y over images and pixels, and of its squares.
std::array<std::vector<double>, 2> sums_of(const std::vector<double>& y, const Shape& shape) {
  std::array<std::vector<double>, 2> sums{std::vector<double>(static_cast<size_t>(shape.c())),
                                          std::vector<double>(static_cast<size_t>(shape.c()))};
  const auto plane = static_cast<size_t>(shape.h() * shape.w()), channels = static_cast<size_t>(shape.c());
  for (size_t i = 0; i < y.size(); ++i) {
    sums[0][i / plane % channels] += y[i];
    sums[1][i / plane % channels] += y[i] * y[i];
  }
  return sums;
}

// Calls check(problem, reference, fused) for each geometry.
template <class Check>
void for_each_problem(Fusion fusion, const Check& check) {
  for (const Geometry& geometry : kGeometries) {
    const InOrder in_order("lazy");
    const ConvProblem p = make_problem(fusion, geometry.x, geometry.outputs, geometry.window);
    INFO(p.to_string());
    const Reference reference(p);
    FusedPlan fused(p, fusion);
    check(p, reference, fused);
  }
}

}  // namespace

TEST_CASE("a convolution with its channels' statistics has those of the reference backend's batch norm") {
  for_each_problem(Fusion::statistics, [](const ConvProblem& p, const Reference& reference, FusedPlan& fused) {
    fused.set(kX, reference.x);
    fused.set(kWeights, reference.weights);
    REQUIRE(fused.run().empty());

    const HostTensor ones{.shape = Shape{p.y.c()}, .values = std::vector<double>(static_cast<size_t>(p.y.c()), 1)};
    const std::vector<test::Step> steps{{Conv2d{p.window}, {0, 1}}, {BatchNorm{kEpsilon, false}, {3, 2, 2}}};
    const std::vector<HostTensor> inputs{reference.x, reference.weights, ones};
    const auto expected = test::run_program(*make_backend("reference", {.threads = 1}), inputs, steps).values;
    check_close(fused.values(kY), expected[3].values, kRounded);
    std::vector<double> mean = fused.values(kSum), variance = fused.values(kSquares);
    const auto count = static_cast<double>(p.y.n() * p.y.h() * p.y.w());
    for (size_t c = 0; c < mean.size(); ++c) {
      mean[c] /= count;
      variance[c] = variance[c] / count - mean[c] * mean[c];
    }
    check_close(mean, expected[5].values, kRounded);
    check_close(variance, expected[6].values, kRounded);
  });
}

TEST_CASE(
    "a convolution of normalized images with its statistics is the reference backend's batch norm, ReLU and "
    "convolution") {
  for_each_problem(Fusion::normalized_statistics,
                   [](const ConvProblem& p, const Reference& reference, FusedPlan& fused) {
                     fused.set(kX, reference.x);
                     fused.set(kWeights, reference.weights);
                     reference.set_prologue(fused);
                     REQUIRE(fused.run().empty());
                     check_close(fused.values(kY), reference.value(9), kRoundedTwice);
                     const auto sums = sums_of(fused.values(kY), p.y);
                     check_close(fused.values(kSum), sums[0], 1e-6);
                     check_close(fused.values(kSquares), sums[1], 1e-6);
                   });
}

TEST_CASE("the gradient by weights at normalized images is the reference backend's at its batch norm and ReLU") {
  for_each_problem(Fusion::normalized_grad_weights,
                   [](const ConvProblem&, const Reference& reference, FusedPlan& fused) {
                     fused.set(kX, reference.x);
                     fused.set(kY, reference.dy);
                     reference.set_prologue(fused);
                     REQUIRE(fused.run().empty());
                     check_close(fused.values(kWeights), reference.value(10), kRoundedTwice);
                   });
}

TEST_CASE("the gradient by input with those of ReLU and batch norm is the reference backend's, in three operations") {
  for_each_problem(Fusion::norm_gradients, [](const ConvProblem& p, const Reference& reference, FusedPlan& fused) {
    fused.set(kX, reference.x);
    fused.set(kY, reference.dy);
    fused.set(kWeights, reference.weights);
    reference.set_norm(fused);
    REQUIRE(fused.run().empty());
    check_close(fused.values(kScaleGradient), reference.value(13), kRounded);
    check_close(fused.values(kShiftGradient), reference.value(14), kRounded);
    const std::vector<double> by_dz = fused.values(kByGradient), by_x = fused.values(kByX),
                              constant = fused.values(kConstant);
    std::vector<double> dx = fused.values(kGradient);
    const auto plane = static_cast<size_t>(p.x.h() * p.x.w()), channels = static_cast<size_t>(p.x.c());
    for (size_t i = 0; i < dx.size(); ++i) {
      const size_t c = i / plane % channels;
      dx[i] = by_dz[c] * dx[i] + by_x[c] * reference.x.values[i] + constant[c];
    }
    check_close(dx, reference.value(12), kRounded);
  });
}

TEST_CASE("memory that does not fit a fused convolution is refused with the tensor's number") {
  const InOrder in_order("eager");
  const auto& [x, outputs, window] = kGeometries[0];
  FusedPlan fused(make_problem(Fusion::normalized_statistics, x, outputs, window), Fusion::normalized_statistics);
  fused.set(kSlope, noise(Shape{x.c()}, 1));
  fused.set(kOffset, noise(Shape{x.c()}, 2));
  const Memory short_vector(Shape{x.c() - 1}, DType::f16), large(Shape{64}, DType::f32);
  CHECK_THAT(fused.run({{kSlope, short_vector.data()}}),
             ContainsSubstring("tensor 5: 32 bytes at") && ContainsSubstring("do not lie in one allocation"));
  CHECK_THAT(fused.run({{kSum, static_cast<char*>(large.data()) + 4}}),
             ContainsSubstring("tensor 7 is not aligned to 16 bytes"));
  std::vector<float> host(64);
  CHECK_THAT(fused.run({{kSquares, host.data()}}),
             ContainsSubstring("tensor 8: ") && ContainsSubstring("device memory"));
  REQUIRE(fused.workspace_bytes > 256);
  CHECK_THAT(fused.run({}, fused.workspace_bytes - 16), ContainsSubstring("the workspace of"));
  const cudnnHandle_t own = fused.handle;
  REQUIRE(cudnnCreate(&fused.handle) == CUDNN_STATUS_SUCCESS);
  CHECK_THAT(fused.run(), ContainsSubstring("on another handle"));
  (void)cudnnDestroy(own);
}

TEST_CASE("bf16 has no engine that is fused with statistics or with a norm") {
  const InOrder in_order("eager");
  cudnnHandle_t handle = nullptr;
  REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
  for (const Fusion fusion :
       {Fusion::statistics, Fusion::normalized_statistics, Fusion::normalized_grad_weights, Fusion::norm_gradients}) {
    const auto& [x, outputs, window] = kGeometries[0];
    ConvProblem p = make_problem(fusion, x, outputs, window);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      p.dtype = dtype;
      EngineGraph graph;
      graph.draw(p, fusion);
      bool found = false;
      if (graph.find_engines(handle)) {
        for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) found |= !graph.compiles_at_run_time(i);
      }
      INFO(kFusionNames[static_cast<size_t>(fusion)] << " in " << dtype_name(dtype));
      CHECK(found == (dtype == DType::f16));
    }
  }
  (void)cudnnDestroy(handle);
}
