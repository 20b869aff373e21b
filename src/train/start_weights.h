// The weights that a new run starts from: those of checkpoint.init_from, or of an ONNX file that model.file names.
#pragma once

#include "lockstep/config/config.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/host_state.h"

namespace lockstep {

// Loads weights from a checkpoint, an HDF5 file of weights, a safetensors file or an ONNX file. A head for another
// number of classes keeps its initial values, as do the parameters that checkpoint.init_exclude names; all others must
// match. Throws Error(config) that names what does not. `onnx`: the contents of an ONNX file that has been read, which
// are moved from; null: the file is read.
void load_start_weights(const Config& config, const std::string& path, const CompiledModel& model,
                        const HostState& host, OnnxModel* onnx = nullptr);

}  // namespace lockstep
