// Convolutions on the fake device: planned by cuDNN itself, computed from what was drawn, refused when the memory that
// comes with the plan does not fit it.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "test/catch.h"
#include "test/fake_gpu/device_floats.h"
#include "test/fake_gpu/order.h"

using namespace lockstep::fake_gpu;

namespace {

using Four = std::array<int64_t, 4>;

void expect(cudnnStatus_t status) {
  char why[512] = "";
  if (status != CUDNN_STATUS_SUCCESS) cudnnGetLastErrorString(why, sizeof why);
  INFO(cudnnGetErrorString(status) << " " << why);
  REQUIRE(status == CUDNN_STATUS_SUCCESS);
}

class Backend {
 public:
  explicit Backend(cudnnBackendDescriptorType_t type) { expect(cudnnBackendCreateDescriptor(type, &handle_)); }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  ~Backend() { (void)cudnnBackendDestroyDescriptor(handle_); }

  template <class T>
  Backend& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value, int64_t count = 1) {
    expect(cudnnBackendSetAttribute(handle_, name, type, count, &value));
    return *this;
  }
  Backend& set(cudnnBackendAttributeName_t name, const Backend& child) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, child.handle_);
  }
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }
  void finalize() { expect(try_finalize()); }
  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

struct Tensor : Backend {
  Tensor(int64_t id, cudnnDataType_t type, const Four& dims, const Four& strides)
      : Backend(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims, 4);
    set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides, 4);
    finalize();
  }
};

Four channels_last(const Four& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }
Four planes(const Four& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

// A 1x1 convolution, which sums channels at each place: y = sum over c of x_c w_kc.
constexpr Four kX{2, 8, 4, 4}, kWeights{16, 8, 1, 1}, kY{2, 16, 4, 4};

// The plan of one forward convolution whose x is drawn with these strides.
struct Plan {
  cudnnHandle_t handle = nullptr;
  Backend plan{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};

  explicit Plan(const Four& x_strides, const Four& weights_dims = kWeights) {
    expect(cudnnCreate(&handle));
    const Tensor x(1, CUDNN_DATA_FLOAT, kX, x_strides), y(3, CUDNN_DATA_FLOAT, kY, channels_last(kY)),
        weights(2, CUDNN_DATA_FLOAT, weights_dims, channels_last(weights_dims));
    Backend geometry(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const std::array<int64_t, 2> zeros{0, 0}, ones{1, 1};
    geometry.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2});
    geometry.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    geometry.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    geometry.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, zeros, 2);
    geometry.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, zeros, 2);
    geometry.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, ones, 2);
    geometry.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, ones, 2);
    geometry.finalize();
    Backend operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weights);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, geometry);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0F);
    operation.finalize();
    Backend graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    graph.finalize();
    choose(graph);
  }
  ~Plan() { (void)cudnnDestroy(handle); }

  // The first engine of the fallback's that takes it.
  void choose(const Backend& graph) {
    Backend heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_FALLBACK);
    heuristics.finalize();
    std::array<Backend, 4> configs{
        Backend(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), Backend(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
        Backend(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), Backend(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)};
    std::array<cudnnBackendDescriptor_t, 4> handles{};
    for (size_t i = 0; i < 4; ++i) handles[i] = configs[i].get();
    int64_t count = 0;
    expect(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 4,
                                    &count, handles.data()));
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]);
      if (plan.try_finalize() == CUDNN_STATUS_SUCCESS) return;
    }
    FAIL("no engine");
  }

  // What executing it with this memory answers.
  std::string execute(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace) const {
    Backend pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids[0], static_cast<int64_t>(ids.size()));
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers[0],
             static_cast<int64_t>(pointers.size()));
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    if (cudnnBackendExecute(handle, plan.get(), pack.get()) == CUDNN_STATUS_SUCCESS) return {};
    char why[512] = "";
    cudnnGetLastErrorString(why, sizeof why);
    return why;
  }
  int64_t workspace_bytes() const {
    int64_t bytes = 0, count = 0;
    expect(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                    &bytes));
    return bytes;
  }
};

size_t elements(const Four& d) { return static_cast<size_t>(d[0] * d[1] * d[2] * d[3]); }

struct Tensors {
  DeviceFloats x{elements(kX), 1}, weights{elements(kWeights), 0.5F}, y{elements(kY)}, workspace{1 << 20};
  std::vector<void*> pointers() const { return {x.data, weights.data, y.data}; }
};

}  // namespace

TEST_CASE("a convolution is computed with the strides that were drawn: a wrong one is a wrong result") {
  const InOrder in_order("eager");
  const auto result = [](const Four& strides) {
    const Tensors t;
    const Plan plan(strides);
    REQUIRE(plan.execute({1, 2, 3}, t.pointers(), t.workspace.data).empty());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return t.y.values(elements(kY));
  };
  const std::vector<float> right = result(channels_last(kX)), wrong = result(planes(kX));
  // The first place of the first image, by hand: x is 0 to 7 there, w_k is 0.5 (8 k + c).
  for (size_t k = 0; k < 2; ++k) {
    float sum = 0;
    for (size_t c = 0; c < 8; ++c) sum += static_cast<float>(c) * 0.5F * static_cast<float>(8 * k + c);
    CHECK(right[k] == sum);
  }
  CHECK(right != wrong);
}

TEST_CASE("a convolution in groups sums over the channels of a group") {
  const InOrder in_order("eager");
  const Tensors t;
  const Plan plan(channels_last(kX), {16, 4, 1, 1});  // two groups
  REQUIRE(plan.execute({1, 2, 3}, t.pointers(), t.workspace.data).empty());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const std::vector<float> y = t.y.values(elements(kY));
  for (const size_t k : {0, 7, 8, 15}) {  // at the second place, where x is 8 to 15; w_k is 0.5 (4 k + c)
    float sum = 0;
    for (size_t c = 0; c < 4; ++c) {
      sum += static_cast<float>(8 + (k < 8 ? 0 : 4) + c) * 0.5F * static_cast<float>(4 * k + c);
    }
    CHECK(y[16 + k] == sum);
  }
}

TEST_CASE("a convolution whose memory does not fit its plan is refused with the tensor's number") {
  const InOrder in_order("eager");
  const Tensors t;
  const Plan plan(channels_last(kX));
  const DeviceFloats small(elements(kX) - 1);
  const std::vector<void*> pointers = t.pointers();
  void* const workspace = t.workspace.data;
  CHECK_THAT(plan.execute({1, 2, 3}, {small.data, pointers[1], pointers[2]}, workspace),
             ContainsSubstring("tensor 1: 1024 bytes at") && ContainsSubstring("do not lie in one allocation"));
  // One element more than the rows of x have: the last row ends beyond the allocation.
  const Plan wider({kX[2] * kX[3] * (kX[1] + 1), 1, kX[3] * (kX[1] + 1), kX[1] + 1});
  CHECK_THAT(wider.execute({1, 2, 3}, pointers, workspace),
             ContainsSubstring("tensor 1: 1148 bytes at") && ContainsSubstring("do not lie in one allocation"));
  CHECK_THAT(plan.execute({1, 2, 4}, pointers, workspace),
             ContainsSubstring("tensor 3 is not in the variant pack once"));
  CHECK_THAT(plan.execute({1, 1, 2, 3}, {pointers[0], pointers[0], pointers[1], pointers[2]}, workspace),
             ContainsSubstring("tensor 1 is not in the variant pack once"));
  const DeviceFloats large(elements(kX) + 4);
  CHECK_THAT(plan.execute({1, 2, 3}, {large.data + 1, pointers[1], pointers[2]}, workspace),
             ContainsSubstring("tensor 1 is not aligned to 16 bytes"));
  std::vector<float> host(elements(kX));
  CHECK_THAT(plan.execute({1, 2, 3}, {host.data(), pointers[1], pointers[2]}, workspace),
             ContainsSubstring("is not device memory"));
}

TEST_CASE("a plan that runs on another handle than it was made for is refused") {
  const InOrder in_order("eager");
  const Tensors t;
  Plan plan(channels_last(kX)), other(channels_last(kX));
  std::swap(plan.handle, other.handle);
  CHECK_THAT(plan.execute({1, 2, 3}, t.pointers(), t.workspace.data), ContainsSubstring("on another handle"));
}

TEST_CASE("a workspace that is shorter than the plan wants is refused") {
  const InOrder in_order("eager");
  const Tensors t;
  const Plan plan(planes(kX));
  const int64_t bytes = plan.workspace_bytes();
  REQUIRE(bytes > 0);
  const DeviceFloats small(static_cast<size_t>(bytes) / sizeof(float) - 1);
  CHECK_THAT(plan.execute({1, 2, 3}, t.pointers(), small.data), ContainsSubstring("the workspace of"));
  CHECK_THAT(plan.execute({1, 2, 3}, t.pointers(), nullptr), ContainsSubstring("the workspace of"));
}
