// A safetensors file. Read as it is, and with the right length of its header in front.
#include "lockstep/exchange/safetensors.h"

#include <cstring>
#include <vector>

#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

// The length of the header is that up to the last '}'.
std::vector<std::byte> with_length(Bytes input) {
  std::vector<std::byte> file(input.begin(), input.end());
  uint64_t header = 0;
  if (file.size() <= sizeof header) return file;
  const size_t end = as_text(input.subspan(sizeof header)).rfind('}');
  if (end == std::string_view::npos) return file;
  header = end + 1;
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

void read(Bytes bytes) {
  expect_answer([&] {
    const MemoryFile file(bytes);
    size_t values = 0;
    for (const NamedTensor& tensor : read_safetensors(file.path()).tensors) {
      require_law(static_cast<size_t>(tensor.shape.elements()) == tensor.values.size(), "a tensor fills its shape");
      values += tensor.values.size() * sizeof(float);
    }
    require_law(values <= bytes.size(), "tensors are no larger than their file");
  });
}

}  // namespace

void safetensors(Bytes input) {
  read(input);
  read(with_length(input));
}

}  // namespace lockstep::fuzz
