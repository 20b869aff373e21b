// What a plan of cuDNN computes: found from the descriptors that the program drew, so that a stride, a size or a name
// that is drawn wrongly is computed wrongly, or refused.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "test/fake_gpu/convolution.h"
#include "test/fake_gpu/cudnn.h"
#include "test/fake_gpu/cudnn_descriptors.h"
#include "test/fake_gpu/memory.h"

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

DnnTensor tensor_of(const Descriptor& descriptor, const Pack& pack) {
  const auto id = descriptor.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  const DnnTensor tensor{.element = element_of(descriptor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                         .dims = numbers<4>(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS),
                         .strides = numbers<4>(descriptor, CUDNN_ATTR_TENSOR_STRIDES),
                         .data = pack.at(id)};
  if (const std::string trouble = trouble_with(tensor.data, tensor.bytes()); !trouble.empty()) {
    refuse(fmt::format("tensor {}: {}", id, trouble));
  }
  const auto alignment = descriptor.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(alignment) != 0) {
    refuse(fmt::format("tensor {} is not aligned to {} bytes", id, alignment));
  }
  return tensor;
}

double factor_of(const Descriptor& operation, cudnnBackendAttributeName_t name) {
  if (operation.at(name).bytes.size() == sizeof(float)) return operation.value<float>(name);
  return operation.value<double>(name);
}

Convolution convolution_of(const Descriptor& operation, const Pack& pack) {
  const ConvNames names = names_of(operation);
  const Descriptor& geometry = operation.child(names.convolution);
  if (geometry.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
    refuse("a convolution that turns the weights round");
  }
  const auto before = numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  if (before != numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)) refuse("padding that differs by side");
  Convolution convolution{.direction = names.direction,
                          .x = tensor_of(operation.child(names.x), pack),
                          .weights = tensor_of(operation.child(names.weights), pack),
                          .y = tensor_of(operation.child(names.y), pack),
                          .padding = before,
                          .stride = numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                          .dilation = numbers<2>(geometry, CUDNN_ATTR_CONVOLUTION_DILATIONS),
                          .alpha = factor_of(operation, names.alpha),
                          .beta = factor_of(operation, names.beta)};
  if (const char* const trouble = convolution.trouble()) refuse(trouble);
  return convolution;
}

}  // namespace

Operation execution_of(cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack_handle) {
  const DescriptorPtr plan_descriptor = find_descriptor(plan), pack_descriptor = find_descriptor(pack_handle);
  if (!plan_descriptor || !pack_descriptor) refuse("a plan or a variant pack that is not there");
  const Pack pack(*pack_descriptor);
  const Convolution convolution = convolution_of(operation_of(*plan_descriptor), pack);
  const size_t workspace_bytes = workspace_bytes_of(plan);
  if (workspace_bytes > 0) {
    if (const std::string trouble = trouble_with(pack.workspace, workspace_bytes); !trouble.empty()) {
      refuse(fmt::format("the workspace of {} bytes: {}", workspace_bytes, trouble));
    }
  }
  constexpr const char* kNames[] = {"a convolution", "a convolution's gradient by input",
                                    "a convolution's gradient by weights"};
  // What the engine leaves in its workspace is nobody's to read.
  return {.what = kNames[static_cast<size_t>(convolution.direction)],
          .run = [convolution, workspace = pack.workspace, workspace_bytes] {
            if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
            convolution.run();
          }};
}

}  // namespace lockstep::fake_gpu
