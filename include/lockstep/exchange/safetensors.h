// safetensors files (https://github.com/huggingface/safetensors): the length of a JSON header, the header, the bytes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/exchange/named_tensor.h"

namespace lockstep {

using Metadata = std::map<std::string, std::string>;

// Returns the whole file, with tensors in the order of their names, as the format's own library writes them.
std::vector<std::byte> encode_safetensors(std::span<const NamedTensor> tensors, const Metadata& metadata);

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> counters;  // PyTorch's num_batches_tracked, which no computation needs: names only
};

// Throws Error(checkpoint), which names the file, if it is truncated or not a safetensors file, if its tensors overlap
// or leave gaps, or if its header is longer than 16 MiB; Error(config) for tensors of a type other than F32, or of more
// than four dimensions.
SafetensorsContent read_safetensors(const std::string& path);

}  // namespace lockstep
