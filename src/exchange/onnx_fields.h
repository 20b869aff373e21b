// Numbers of onnx.proto: fields of messages, types of elements and attributes.
#pragma once

#include <cstdint>

namespace lockstep::onnx_field {

constexpr int kModelIrVersion = 1, kModelProducer = 2, kModelGraph = 7, kModelOpset = 8, kModelMetadata = 14;
constexpr int kOpsetDomain = 1, kOpsetVersion = 2;
constexpr int kEntryKey = 1, kEntryValue = 2;
constexpr int kGraphNode = 1, kGraphName = 2, kGraphInitializer = 5, kGraphInput = 11, kGraphOutput = 12;
constexpr int kGraphSparseInitializer = 15;
constexpr int kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kNodeType = 4, kNodeAttribute = 5, kNodeDomain = 7;
constexpr int kAttributeName = 1, kAttributeFloat = 2, kAttributeInt = 3, kAttributeText = 4, kAttributeTensor = 5;
constexpr int kAttributeInts = 8, kAttributeType = 20;
constexpr int kTensorDims = 1, kTensorType = 2, kTensorFloats = 4, kTensorInt64s = 7, kTensorName = 8, kTensorData = 9;
constexpr int kTensorExternal = 13, kTensorLocation = 14;
constexpr int kValueName = 1, kValueType = 2, kTypeTensor = 1, kTensorTypeElement = 1, kTensorTypeShape = 2;
constexpr int kShapeDim = 1, kDimValue = 1, kDimParameter = 2;

}  // namespace lockstep::onnx_field

namespace lockstep::onnx_type {

constexpr int64_t kFloat = 1, kInt64 = 7;                    // TensorProto.DataType
constexpr int64_t kFloatAttribute = 1, kInt = 2, kInts = 7;  // AttributeProto.AttributeType
constexpr int64_t kExternal = 1;                             // TensorProto.DataLocation

}  // namespace lockstep::onnx_type
