#include "backend/cpu/context.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::dims dims(const Shape& shape, int64_t groups = 1) {
  if (groups == 1) return {shape.begin(), shape.end()};
  return {groups, shape[0] / groups, shape[1], shape[2], shape[3]};
}

memory::data_type data_type(DType dtype) {
  require(dtype == DType::f32 || dtype == DType::bf16, "no tensor of {} reaches oneDNN", dtype_name(dtype));
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

Tag row_major(int rank) {
  constexpr Tag kTags[] = {Tag::a, Tag::ab, Tag::abc, Tag::abcd, Tag::abcde};
  require(rank >= 1 && rank <= 5, "no tensor of {} dimensions reaches oneDNN", rank);
  return kTags[rank - 1];
}

Tag blocked_tag(int32_t block) {
  require(block == 8 || block == 16, "blocks of {} channels", block);
  return block == 8 ? Tag::aBcd8b : Tag::aBcd16b;
}

}  // namespace

Format OpaqueFormats::format_of(const MemoryDesc& desc) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(descs_, desc);
  const auto id = static_cast<int32_t>(found - descs_.begin());
  if (found == descs_.end()) descs_.push_back(desc);
  return Format::opaque(id);
}

MemoryDesc OpaqueFormats::desc_of(Format format) const {
  const std::lock_guard lock(mutex_);
  require(format.id >= 0 && static_cast<size_t>(format.id) < descs_.size(), "unknown format {}", format.to_string());
  return descs_[format.id];
}

MemoryDesc Context::memory_desc(const TensorDesc& desc, int64_t groups) const {
  require(desc.parent_channels == 0, "{} is no tensor for oneDNN", desc.to_string());
  const auto described = [&](Tag tag) { return MemoryDesc(dims(desc.shape, groups), data_type(desc.dtype), tag); };
  switch (desc.format.kind) {
    case Format::Kind::plain:
      return described(row_major(desc.shape.rank() + (groups == 1 ? 0 : 1)));
    case Format::Kind::channels_last:
      return described(Tag::acdb);
    case Format::Kind::blocked:
      return described(blocked_tag(desc.format.id));
    case Format::Kind::opaque:
      return opaque.desc_of(desc.format);
  }
  fail(ExitCode::internal, "unknown format {}", desc.format.to_string());
}

MemoryDesc Context::any_desc(const TensorDesc& desc, int64_t groups) {
  return {dims(desc.shape, groups), data_type(desc.dtype), Tag::any};
}

Format Context::format_of(const MemoryDesc& layout, TensorDesc desc, int64_t groups) const {
  desc.format = Format::plain();
  return layout == memory_desc(desc, groups) ? Format::plain() : opaque.format_of(layout);
}

}  // namespace lockstep::cpu
