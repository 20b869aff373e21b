#include "lockstep/exchange/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/checked_size.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kAlignment = 8;  // the header is padded with spaces, so that the bytes are aligned
// The format allows 100 MB; a tensor's entry takes about 100 bytes. Parsed, a header takes up to 40 times its bytes.
constexpr uint64_t kMostHeaderBytes = 16 << 20;
constexpr size_t kPrintedType = 16;

// The position of one tensor: bytes from the end of the header.
struct Range {
  uint64_t begin = 0, end = 0;
};

// Returns an extent or an offset. JSON has other kinds of numbers, which a conversion would accept silently.
int64_t whole_number(const std::string& name, const Json& number) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (!number.is_number_unsigned() || number.get<uint64_t>() > kMost) {
    fail(ExitCode::checkpoint, "{} has a shape or offsets that are not whole numbers", printable(name));
  }
  return static_cast<int64_t>(number.get<uint64_t>());
}

Range range_of(const std::string& name, const Json& entry, uint64_t data_bytes) {
  const Json& offsets = entry.at("data_offsets");
  const Range range{static_cast<uint64_t>(whole_number(name, offsets.at(0))),
                    static_cast<uint64_t>(whole_number(name, offsets.at(1)))};
  if (range.begin > range.end || range.end > data_bytes) {
    fail(ExitCode::checkpoint, "{} lies outside the file", printable(name));
  }
  return range;
}

NamedTensor read_tensor(const std::string& name, const Json& entry, std::span<const std::byte> bytes) {
  std::vector<int64_t> dims;
  for (const Json& extent : entry.at("shape").get_ref<const Json::array_t&>())
    dims.push_back(whole_number(name, extent));
  if (dims.size() > Shape::kMaxRank) {
    fail(ExitCode::config, "{} has {} dimensions, {} are the most", printable(name), dims.size(), Shape::kMaxRank);
  }
  const std::optional<int64_t> elements = checked_product(dims);
  if (!elements || *elements == 0) fail(ExitCode::checkpoint, "{} has an impossible shape", printable(name));
  if (bytes.size() % sizeof(float) != 0 || static_cast<uint64_t>(*elements) != bytes.size() / sizeof(float)) {
    fail(ExitCode::checkpoint, "{} has {} values in its shape and {} bytes in the file", printable(name), *elements,
         bytes.size());
  }
  NamedTensor tensor{name, Shape(std::span<const int64_t>(dims)), std::vector<float>(bytes.size() / sizeof(float))};
  std::memcpy(tensor.values.data(), bytes.data(), bytes.size());
  return tensor;
}

// The format requires that every byte belongs to exactly one tensor. Otherwise a small file could declare the same
// bytes as many tensors.
void require_no_overlap(std::vector<Range> ranges, uint64_t data_bytes) {
  std::ranges::sort(ranges, {}, [](const Range& range) { return std::pair(range.begin, range.end); });
  uint64_t end = 0;
  for (const Range& range : ranges) {
    if (range.begin != end) {
      fail(ExitCode::checkpoint, "its tensors {} at byte {} of the data, which safetensors files must not",
           range.begin < end ? "overlap" : "leave a gap", std::min(range.begin, end));
    }
    end = range.end;
  }
  if (end != data_bytes) fail(ExitCode::checkpoint, "{} bytes behind its tensors belong to none", data_bytes - end);
}

// A header is an object of objects of short lists. Throws for one that nests deeper, or has a name twice.
Json parse_header(std::string_view text) {
  constexpr int kMostDepth = 4;
  std::set<std::string> names;
  return Json::parse(text.begin(), text.end(), [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMostDepth) fail(ExitCode::checkpoint, "its header nests too deep");
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      fail(ExitCode::checkpoint, "its header has {} twice", printable(parsed.get<std::string>()));
    }
    return true;
  });
}

SafetensorsContent parse(std::span<const std::byte> file) {
  uint64_t header_bytes = 0;
  if (file.size() >= kLengthBytes) std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes == 0 || header_bytes > file.size() - kLengthBytes) {
    fail(ExitCode::checkpoint, "not a safetensors file, or cut short");
  }
  if (header_bytes > kMostHeaderBytes) {
    fail(ExitCode::checkpoint, "its header has {} bytes, {} are the most", header_bytes, kMostHeaderBytes);
  }
  const Json header = parse_header({reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes});
  const auto data = file.subspan(kLengthBytes + header_bytes);
  SafetensorsContent content;
  std::vector<Range> ranges;
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") continue;
    ranges.push_back(range_of(item.key(), item.value(), data.size()));
    if (item.key().ends_with("num_batches_tracked")) content.counters.push_back(item.key());
  }
  require_no_overlap(ranges, data.size());
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__" || name.ends_with("num_batches_tracked")) continue;
    if (const auto type = entry.at("dtype").get<std::string>(); type != "F32") {
      fail(ExitCode::config, "{} is of type {}: convert it to float32 first", printable(name),
           printable(type, kPrintedType));
    }
    const Range range = range_of(name, entry, data.size());
    content.tensors.push_back(read_tensor(name, entry, data.subspan(range.begin, range.end - range.begin)));
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
