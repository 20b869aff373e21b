#include "lockstep/tensor/tensor.h"

#include <optional>

#include "lockstep/base/checked_size.h"
#include "lockstep/base/error.h"

namespace lockstep {

namespace {

struct DTypeFacts {
  std::string_view name;
  size_t bytes;
};

const DTypeFacts& facts_of(DType type) {
  static constexpr DTypeFacts kFacts[] = {{"f32", 4}, {"f64", 8}, {"i32", 4}, {"u8", 1}, {"bf16", 2}, {"f16", 2}};
  static_assert(std::size(kFacts) == static_cast<size_t>(DType::f16) + 1, "one row for each DType, in its order");
  return kFacts[static_cast<size_t>(type)];
}

}  // namespace

size_t dtype_bytes(DType type) { return facts_of(type).bytes; }

std::string_view dtype_name(DType type) { return facts_of(type).name; }

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  require(dims.size() <= kMaxRank, "a shape has at most {} dimensions, not {}", int{kMaxRank}, dims.size());
  for (int64_t d : dims) dims_[rank_++] = d;
}

int64_t Shape::elements() const {
  const std::optional<int64_t> product = checked_product({begin(), end()});
  // This does not use require(), which would format the text each time.
  if (!product) fail(ExitCode::internal, "the elements of {} cannot be counted", to_string());
  return *product;
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(begin(), end(), ",")); }

std::string Format::to_string() const {
  switch (kind) {
    case Kind::plain:
      return "plain";
    case Kind::channels_last:
      return "channels_last";
    case Kind::blocked:
      return fmt::format("blocked{}", id);
    case Kind::opaque:
      return fmt::format("opaque#{}", id);
  }
  return "?";
}

std::string TensorDesc::to_string() const {
  const std::string text = fmt::format("{}{} {}", dtype_name(dtype), shape.to_string(), format.to_string());
  return parent_channels > 0 ? fmt::format("{} of {} channels", text, parent_channels) : text;
}

size_t packed_bytes(const TensorDesc& desc) {
  require(desc.format.kind != Format::Kind::opaque, "the size of {} is known to its backend only", desc.to_string());
  Shape stored = desc.shape;
  if (desc.format.kind == Format::Kind::blocked) {
    const int64_t block = desc.format.id;
    stored = {stored.n(), (stored.c() + block - 1) / block * block, stored.h(), stored.w()};
  }
  const auto bytes = checked_product(std::array{stored.elements(), static_cast<int64_t>(dtype_bytes(desc.dtype))});
  require(bytes.has_value(), "the bytes of {} cannot be counted", desc.to_string());
  return static_cast<size_t>(*bytes);
}

int64_t channel_offset_bytes(const TensorDesc& desc, int64_t channel) {
  const auto width = static_cast<int64_t>(dtype_bytes(desc.dtype));
  switch (desc.format.kind) {
    case Format::Kind::channels_last:
      return channel * width;
    case Format::Kind::blocked:
      require(channel % desc.format.id == 0, "channel {} of {} starts no block", channel, desc.to_string());
      break;
    case Format::Kind::plain:
      break;
    case Format::Kind::opaque:
      fail(ExitCode::internal, "the channels of {} are known to its backend only", desc.to_string());
  }
  return channel * desc.shape.h() * desc.shape.w() * width;
}

}  // namespace lockstep
