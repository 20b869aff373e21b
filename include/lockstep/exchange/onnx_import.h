// Reads networks and their weights from ONNX files, if model files can express their operations (docs/model_files.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/exchange/named_tensor.h"

namespace lockstep {

struct OnnxModel {
  std::string definition;            // the network as a model file, without weights
  std::vector<NamedTensor> weights;  // the values of its parameters
  int64_t image_size = 0;            // 0: any
};

// Translates the nodes that the output depends on. `file`: the whole file; `name` is for messages; `directory` is that
// of additional files with weights; empty: there may be none. Needs four times the files' bytes of memory. Throws
// Error(config) that names the node and its operation if it cannot be expressed, and Error(damaged) if the file is not
// ONNX or is truncated, or if another file that it names cannot be read.
OnnxModel import_onnx(std::span<const std::byte> file, const std::string& name, const std::string& directory = {},
                      ExitCode damaged = ExitCode::config);
// `damaged` is also the code for a file that cannot be read.
OnnxModel read_onnx_model(const std::string& path, ExitCode damaged = ExitCode::config);

// Whether the path of model.file names an ONNX file and not a list of layers.
bool is_onnx(const std::string& path);

// Returns the text for model.definition: the contents of a list of layers, or the definition of an ONNX file.
std::string read_definition(const std::string& path);

}  // namespace lockstep
