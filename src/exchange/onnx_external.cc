#include "exchange/onnx_external.h"

#include "lockstep/base/checked_size.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"

namespace lockstep {

const OnnxExternal::File& OnnxExternal::open(const OnnxTensor& tensor) {
  const std::string& name = tensor.location;
  if (const auto found = files_.find(name); found != files_.end()) return found->second;
  if (directory_.empty() || name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    fail(ExitCode::config, "the values of {} are in the file {}, which must be in the directory of the ONNX file",
         printable(tensor.name), printable(name));
  }
  File file{.path = directory_ + "/" + name, .descriptor = {}};
  file.descriptor = open_regular_file(file.path, damaged_);
  file.size = file_size(file.descriptor, file.path, damaged_);
  opened_bytes_ += static_cast<uint64_t>(file.size);
  return files_.emplace(name, std::move(file)).first->second;
}

std::vector<std::byte> OnnxExternal::read(const OnnxTensor& tensor) {
  const File& file = open(tensor);
  const auto left = file.size - std::min(file.size, tensor.offset);
  require_available({.what = fmt::format("{}: {}", printable(file.path), printable(tensor.name)),
                     .declared = static_cast<uint64_t>(tensor.bytes),
                     .available = static_cast<uint64_t>(left),
                     .blame = damaged_});
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
  pread_all(file.descriptor, bytes, {.path = file.path, .offset = tensor.offset, .blame = damaged_});
  return bytes;
}

}  // namespace lockstep
