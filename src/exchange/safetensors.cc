#include "lockstep/exchange/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kAlignment = 8;              // the header is filled up with spaces, so that the bytes lie aligned
constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

// Where one tensor lies: bytes from the end of the header.
struct Range {
  uint64_t begin = 0, end = 0;
};

NamedTensor read_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data) {
  const auto dims = entry.at("shape").get<std::vector<int64_t>>();
  const auto offsets = entry.at("data_offsets").get<std::array<uint64_t, 2>>();
  const Range range{offsets[0], offsets[1]};
  if (dims.size() > Shape::kMaxRank) {
    fail(ExitCode::config, "{} has {} dimensions, 4 are the most", name, dims.size());
  }
  // Bounded by what is there before anything is multiplied out or allocated.
  uint64_t elements = 1;
  for (const int64_t extent : dims) {
    if (extent <= 0 || static_cast<uint64_t>(extent) > data.size() / elements) {
      fail(ExitCode::checkpoint, "{} has an impossible shape", name);
    }
    elements *= static_cast<uint64_t>(extent);
  }
  if (range.begin > range.end || range.end > data.size() || range.end - range.begin != elements * sizeof(float)) {
    fail(ExitCode::checkpoint, "{} lies outside the file", name);
  }
  NamedTensor tensor{name, Shape(std::span<const int64_t>(dims)), std::vector<float>(elements)};
  std::memcpy(tensor.values.data(), data.data() + range.begin, elements * sizeof(float));
  return tensor;
}

SafetensorsContent parse(std::span<const std::byte> file) {
  uint64_t header_bytes = 0;
  if (file.size() >= kLengthBytes) std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes == 0 || header_bytes > kMaxHeader || header_bytes > file.size() - kLengthBytes) {
    fail(ExitCode::checkpoint, "not a safetensors file, or cut short");
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  const Json header = Json::parse(text, text + header_bytes);
  SafetensorsContent content;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (name.ends_with("num_batches_tracked")) {
      content.counters.push_back(name);
      continue;
    }
    if (const auto type = entry.at("dtype").get<std::string>(); type != "F32") {
      fail(ExitCode::config, "{} is of type {}: convert it to float32 first", name, type);
    }
    content.tensors.push_back(read_tensor(name, entry, file.subspan(kLengthBytes + header_bytes)));
  }
  return content;
}

}  // namespace

std::vector<std::byte> encode_safetensors(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, [](const NamedTensor* tensor) { return tensor->name; });
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  uint64_t end = 0;
  for (const NamedTensor* tensor : sorted) {
    const uint64_t begin = end;
    end += tensor->values.size() * sizeof(float);
    header[tensor->name] = {{"dtype", "F32"},
                            {"shape", std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end())},
                            {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  const uint64_t header_bytes = text.size();
  std::vector<std::byte> file(kLengthBytes + text.size() + end);
  std::byte* to = file.data();
  const auto append = [&to](const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  append(&header_bytes, kLengthBytes);
  append(text.data(), text.size());
  for (const NamedTensor* tensor : sorted) append(tensor->values.data(), tensor->values.size() * sizeof(float));
  return file;
}

SafetensorsContent read_safetensors(const std::string& path) {
  const std::vector<std::byte> file = read_regular_file(path, ExitCode::checkpoint);
  try {
    return parse(file);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path, error.what()), error.where());
  } catch (const Json::exception&) {
    fail(ExitCode::checkpoint, "{}: the header is not what safetensors files have", path);
  }
}

}  // namespace lockstep
