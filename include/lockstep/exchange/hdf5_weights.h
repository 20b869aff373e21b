// HDF5 files that contain only weights: one data set per parameter, under its own name at the root.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/exchange/named_tensor.h"
#include "lockstep/exchange/safetensors.h"
#include "lockstep/io/hdf5.h"

namespace lockstep {

// Returns the whole file; `metadata` become attributes of the root. `name` is for messages.
Hdf5Image encode_hdf5_weights(std::span<const NamedTensor> tensors, const Metadata& metadata, const std::string& name);

// Reads any HDF5 file whose data sets have the names of parameters, at the root or under /model, also a checkpoint.
// Counters of PyTorch (num_batches_tracked) are left out. `check` gets names and shapes before any value is read, and
// throws if they do not fit. Throws Error(checkpoint).
using ShapeCheck = std::function<void(const std::vector<NamedTensor>&)>;
std::vector<NamedTensor> read_hdf5_weights(const std::string& path, const ShapeCheck& check = {});

}  // namespace lockstep
