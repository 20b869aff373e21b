// HDF5 files of bare weights: one data set a parameter, under its own name at the root.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/exchange/named_tensor.h"
#include "lockstep/exchange/safetensors.h"
#include "lockstep/io/hdf5.h"

namespace lockstep {

// The whole file; `metadata` become attributes of the root. `name` is for messages.
Hdf5Image encode_hdf5_weights(std::span<const NamedTensor> tensors, const Metadata& metadata, const std::string& name);

// Any HDF5 file whose data sets bear parameter names, at the root or under /model; a checkpoint, too. Counters of
// PyTorch (num_batches_tracked) are left out. `check` gets names and shapes before any value is read, and throws when
// they are not what is wanted. Throws Error(checkpoint).
using ShapeCheck = std::function<void(const std::vector<NamedTensor>&)>;
std::vector<NamedTensor> read_hdf5_weights(const std::string& path, const ShapeCheck& check = {});

}  // namespace lockstep
