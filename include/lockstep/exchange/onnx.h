// ONNX models (https://onnx.ai): the evaluation graph with its weights, as operators of opset 13.
#pragma once

#include <span>
#include <string>

#include "lockstep/exchange/named_tensor.h"
#include "lockstep/exchange/safetensors.h"

namespace lockstep {

struct OnnxOptions {
  std::string name;              // of the graph
  bool fold_batch_norm = false;  // into the convolution before it, if that has no other reader
  Metadata metadata;
};

// Returns the whole file. `graph` is an evaluation graph as the model builds it (forward, float32, no rewrites, batch
// of 1); `weights` has all its parameters. Input "images" [N,3,H,W], normalized as in training, or for sparse samples
// "ids" int64[N,L], below 0 if a sample has fewer than L, and "values" [N,L]; output "logits" [N,K] of the main head; N
// and L are dynamic. Throws Error(config) for an operation without an equivalent in ONNX, and above the 2 GB that one
// file can hold.
std::string encode_onnx(const Graph& graph, std::span<const NamedTensor> weights, const OnnxOptions& options);

}  // namespace lockstep
