// What a plan of cuDNN computes: found from the descriptors that the program drew, so that a stride, a size or a name
// that is drawn wrongly is computed wrongly, or refused.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "lockstep/base/random.h"
#include "test/fake_gpu/cudnn.h"
#include "test/fake_gpu/cudnn_descriptors.h"
#include "test/fake_gpu/fused_operations.h"
#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/planted.h"

namespace lockstep::fake_gpu {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Refused(cudaErrorInvalidValue, "cuDNN: " + why); }

// The names of attributes of one of the three operations.
struct ConvNames {
  ConvDirection direction;
  cudnnBackendAttributeName_t convolution, x, weights, y, alpha, beta;
};

ConvNames names_of(const Descriptor& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {ConvDirection::forward,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {ConvDirection::grad_input,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return {ConvDirection::grad_weights,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      refuse(fmt::format("operation {} has no fake; write one in test/fake_gpu", static_cast<int>(operation.type)));
  }
}

Element element_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return Element::f32;
  if (type == CUDNN_DATA_BFLOAT16) return Element::bf16;
  if (type != CUDNN_DATA_HALF) refuse(fmt::format("elements of type {}", static_cast<int>(type)));
  return Element::f16;
}

template <size_t kCount>
std::array<int64_t, kCount> numbers(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const std::vector<int64_t> values = descriptor.list<int64_t>(name);
  if (values.size() != kCount) refuse(fmt::format("{} numbers where {} belong", values.size(), kCount));
  std::array<int64_t, kCount> result{};
  std::ranges::copy(values, result.begin());
  return result;
}

// Memory by the tensors' numbers.
struct Pack {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  void* workspace = nullptr;

  explicit Pack(const Descriptor& descriptor)
      : ids(descriptor.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)),
        pointers(descriptor.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)) {
    if (descriptor.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)) {
      workspace = descriptor.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    }
    if (ids.size() != pointers.size()) refuse(fmt::format("{} tensors and {} pointers", ids.size(), pointers.size()));
  }
  void* at(int64_t id) const {
    if (std::ranges::count(ids, id) != 1) refuse(fmt::format("tensor {} is not in the variant pack once", id));
    return pointers[static_cast<size_t>(std::ranges::find(ids, id) - ids.begin())];
  }
};

// The tensors of one execution. Those that are virtual have no memory in the pack, but here.
class Tensors {
 public:
  explicit Tensors(const Descriptor& pack) : pack_(pack) {}
  void* workspace() const { return pack_.workspace; }

  DnnTensor input(const Descriptor& descriptor) const {
    const auto id = id_of(descriptor);
    if (!is_virtual(descriptor)) return in_memory(descriptor, id);
    const auto found = virtual_.find(id);
    if (found == virtual_.end()) refuse(fmt::format("virtual tensor {} is read before an operation writes it", id));
    return drawn(descriptor, found->second->data());
  }
  DnnTensor output(const Descriptor& descriptor) {
    const auto id = id_of(descriptor);
    if (!is_virtual(descriptor)) return in_memory(descriptor, id);
    const auto [at, fresh] = virtual_.emplace(id, std::make_shared<std::vector<std::byte>>());
    if (!fresh) refuse(fmt::format("virtual tensor {} is written twice", id));
    at->second->resize(drawn(descriptor, nullptr).bytes());
    return drawn(descriptor, at->second->data());
  }
  auto take_virtual() { return std::move(virtual_); }

 private:
  static int64_t id_of(const Descriptor& descriptor) { return descriptor.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID); }
  static bool is_virtual(const Descriptor& descriptor) {
    return descriptor.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && descriptor.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }
  static DnnTensor drawn(const Descriptor& descriptor, void* data) {
    return {.element = element_of(descriptor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
            .dims = numbers<4>(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS),
            .strides = numbers<4>(descriptor, CUDNN_ATTR_TENSOR_STRIDES),
            .data = data};
  }
  DnnTensor in_memory(const Descriptor& descriptor, int64_t id) const {
    const DnnTensor tensor = drawn(descriptor, pack_.at(id));
    if (const std::string trouble = trouble_with(tensor.data, tensor.bytes()); !trouble.empty()) {
      refuse(fmt::format("tensor {}: {}", id, trouble));
    }
    const auto alignment = descriptor.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(alignment) != 0) {
      refuse(fmt::format("tensor {} is not aligned to {} bytes", id, alignment));
    }
    return tensor;
  }

  const Pack pack_;
  std::map<int64_t, std::shared_ptr<std::vector<std::byte>>> virtual_;
};

double factor_of(const Descriptor& operation, cudnnBackendAttributeName_t name) {
  if (operation.at(name).bytes.size() == sizeof(float)) return operation.value<float>(name);
  return operation.value<double>(name);
}

Convolution convolution_of(const Descriptor& operation, Tensors& tensors) {
  const ConvNames names = names_of(operation);
  const Descriptor& geometry = operation.child(names.convolution);
  if (geometry.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
    refuse("a convolution that turns the weights round");
  }
  const auto before = numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  if (before != numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)) refuse("padding that differs by side");
  const auto tensor = [&](cudnnBackendAttributeName_t name, ConvDirection writes) {
    const Descriptor& descriptor = operation.child(name);
    return names.direction == writes ? tensors.output(descriptor) : tensors.input(descriptor);
  };
  return {.direction = names.direction,
          .x = tensor(names.x, ConvDirection::grad_input),
          .weights = tensor(names.weights, ConvDirection::grad_weights),
          .y = tensor(names.y, ConvDirection::forward),
          .padding = before,
          .stride = numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
          .dilation = numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_DILATIONS),
          .alpha = factor_of(operation, names.alpha),
          .beta = factor_of(operation, names.beta)};
}

PointwiseMode mode_of(const Descriptor& pointwise) {
  const auto mode = pointwise.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return PointwiseMode::add;
    case CUDNN_POINTWISE_MUL:
      return PointwiseMode::multiply;
    case CUDNN_POINTWISE_SUB:
      return PointwiseMode::subtract;
    case CUDNN_POINTWISE_RELU_FWD:
    case CUDNN_POINTWISE_RELU_BWD:
      if (pointwise.value<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP) != 0 ||
          pointwise.value<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE) != 0 ||
          pointwise.value<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP) < std::numeric_limits<float>::max()) {
        refuse("a ReLU with other limits than 0 and infinity");
      }
      return mode == CUDNN_POINTWISE_RELU_FWD ? PointwiseMode::relu : PointwiseMode::relu_gradient;
    default:
      refuse(fmt::format("pointwise mode {} has no fake; write one in test/fake_gpu", static_cast<int>(mode)));
  }
}

Pointwise pointwise_of(const Descriptor& operation, Tensors& tensors) {
  Pointwise pointwise{.mode = mode_of(operation.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)),
                      .alpha1 = factor_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1),
                      .alpha2 = factor_of(operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2)};
  const bool is_gradient = pointwise.mode == PointwiseMode::relu_gradient;
  const Descriptor& x = operation.child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  pointwise.a = tensors.input(is_gradient ? operation.child(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) : x);
  if (is_gradient) {
    pointwise.b = tensors.input(x);
  } else if (pointwise.mode != PointwiseMode::relu) {
    pointwise.b = tensors.input(operation.child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  }
  pointwise.out = tensors.output(
      operation.child(is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  return pointwise;
}

ChannelStatistics statistics_of(const Descriptor& operation, Tensors& tensors) {
  return {.x = tensors.input(operation.child(CUDNN_ATTR_OPERATION_GENSTATS_XDESC)),
          .sum = tensors.output(operation.child(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC)),
          .squares = tensors.output(operation.child(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC))};
}

NormGradients norm_gradients_of(const Descriptor& operation, Tensors& tensors) {
  const auto input = [&](cudnnBackendAttributeName_t name) { return tensors.input(operation.child(name)); };
  const auto output = [&](cudnnBackendAttributeName_t name) { return tensors.output(operation.child(name)); };
  return {.x = input(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC),
          .dy = input(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC),
          .mean = input(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
          .inverse_deviation = input(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
          .scale = input(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC),
          .dscale = output(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC),
          .dbias = output(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC),
          .by_dy = output(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC),
          .by_x = output(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC),
          .constant = output(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS)};
}

// FAKE_GPU_PLANS=N: each plan takes its own time, 1 to 2 ms, which the seed N and the device select, and rounds its
// sums in its own way. With N:F, one plan of F does not run.
struct PlanOddity {
  double seconds = 0;
  double factor = 1;

  explicit PlanOddity(cudnnBackendDescriptor_t plan) {
    const auto numbers = two_numbers("FAKE_GPU_PLANS");
    if (!numbers) return;
    const auto seed = static_cast<unsigned>(numbers->first), failing = static_cast<unsigned>(numbers->second);
    const uint64_t number = number_of(plan);
    if (failing > 0 && splitmix64(number) % failing == 0) refuse("a plan that FAKE_GPU_PLANS lets fail");
    int device = 0;
    (void)cudaGetDevice(&device);
    seconds = 1e-3 + 1e-6 * static_cast<double>(splitmix64(number + splitmix64(100 * seed + device)) % 1000);
    factor = 1 + 1e-5 * static_cast<double>(number % 16);
  }
};

// Which execution of a plan in this process faults, FAKE_GPU_PLAN_FAULT=N; counts the executions.
bool next_execution_faults() {
  static int executions = 0;
  const char* const number = std::getenv("FAKE_GPU_PLAN_FAULT");
  return number && ++executions == std::atoi(number);
}

using Step = std::variant<Convolution, Pointwise, ChannelStatistics, NormGradients>;

Step step_of(const Descriptor& operation, Tensors& tensors) {
  const auto step = [&]() -> Step {
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise_of(operation, tensors);
      case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return statistics_of(operation, tensors);
      case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
        return norm_gradients_of(operation, tensors);
      default:
        return convolution_of(operation, tensors);
    }
  }();
  if (const char* const trouble = std::visit([](const auto& s) { return s.trouble(); }, step)) refuse(trouble);
  return step;
}

// For messages: the convolution of these operations, and how many more there are.
std::string name_of(std::span<const Step> steps) {
  constexpr const char* kNames[] = {"a convolution", "a convolution's gradient by input",
                                    "a convolution's gradient by weights"};
  for (const Step& step : steps) {
    const auto* const convolution = std::get_if<Convolution>(&step);
    if (!convolution) continue;
    const char* const name = kNames[static_cast<size_t>(convolution->direction)];
    return steps.size() == 1 ? name : fmt::format("{} fused with {} operations", name, steps.size() - 1);
  }
  return fmt::format("{} operations of cuDNN", steps.size());
}

}  // namespace

Operation execution_of(cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const DescriptorPtr plan_descriptor = find_descriptor(plan), pack_descriptor = find_descriptor(pack);
  if (!plan_descriptor || !pack_descriptor) refuse("a plan or a variant pack that is not there");
  Tensors tensors(*pack_descriptor);
  std::vector<Step> steps;
  for (const DescriptorPtr& operation : graph_of(*plan_descriptor).at(CUDNN_ATTR_OPERATIONGRAPH_OPS).children) {
    steps.push_back(step_of(*operation, tensors));
  }
  void* const workspace = tensors.workspace();
  const size_t workspace_bytes = workspace_bytes_of(plan);
  if (workspace_bytes > 0) {
    if (const std::string trouble = trouble_with(workspace, workspace_bytes); !trouble.empty()) {
      refuse(fmt::format("the workspace of {} bytes: {}", workspace_bytes, trouble));
    }
  }
  const PlanOddity oddity(plan);
  for (Step& step : steps) {
    if (auto* const convolution = std::get_if<Convolution>(&step)) convolution->alpha *= oddity.factor;
  }
  const std::string name = name_of(steps);
  // What the engine leaves in its workspace is nobody's to read.
  return {.what = name,
          .run =
              [steps = std::move(steps), memory = tensors.take_virtual(), workspace, workspace_bytes,
               faults = next_execution_faults()] {
                if (faults) throw std::runtime_error("an illegal memory access was encountered");
                if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
                for (const Step& step : steps) std::visit([](const auto& s) { s.run(); }, step);
              },
          .seconds = oddity.seconds};
}

}  // namespace lockstep::fake_gpu
