// The files beside an ONNX file that hold values of its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exchange/onnx_file.h"
#include "lockstep/base/error.h"
#include "lockstep/io/file.h"

namespace lockstep {

// Opens each file once. Used by one thread.
class OnnxExternal {
 public:
  // `directory` is that of the ONNX file. Tensors can name only files directly in it; if it is empty, none.
  OnnxExternal(std::string directory, ExitCode damaged) : directory_(std::move(directory)), damaged_(damaged) {}

  // Returns the bytes of a tensor. Throws Error(damaged) if the file cannot be read, or ends before them.
  std::vector<std::byte> read(const OnnxTensor& tensor);
  uint64_t opened_bytes() const { return opened_bytes_; }  // of all files so far

 private:
  struct File {
    std::string path;
    FileDescriptor descriptor;
    int64_t size = 0;
  };
  const File& open(const OnnxTensor& tensor);

  std::string directory_;
  ExitCode damaged_;
  std::map<std::string, File> files_;  // by name in the ONNX file
  uint64_t opened_bytes_ = 0;
};

}  // namespace lockstep
