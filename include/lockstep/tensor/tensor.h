// Describes a tensor: its shape, its element type, and its layout in memory. Nothing here owns memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

enum class DType : uint8_t { f32, f64, i32, u8, bf16, f16 };

size_t dtype_bytes(DType type);
std::string_view dtype_name(DType type);

// Up to four dimensions in logical order: [N,C,H,W] for images, [O,I,H,W] for convolution weights, [N,C] for rows.
// A rank of 0 is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  int64_t elements() const;
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  bool operator==(const Shape& other) const = default;
  std::string to_string() const;  // "[8,64,35,35]"

  // [N,C,H,W] by name; H and W are 1 for lower ranks.
  int64_t n() const { return rank_ > 0 ? dims_[0] : 1; }
  int64_t c() const { return rank_ > 1 ? dims_[1] : 1; }
  int64_t h() const { return rank_ > 2 ? dims_[2] : 1; }
  int64_t w() const { return rank_ > 3 ? dims_[3] : 1; }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// The layout of elements in memory. `plain` is row-major in logical order (NCHW); `channels_last` is NHWC; blocked is
// nChw<b>c with channels padded with zeros to a multiple of the block; `opaque` is a layout that only the backend
// knows, distinguished by `id` (for example a convolution's packed weights).
struct Format {
  enum class Kind : uint8_t { plain, channels_last, blocked, opaque };
  Kind kind = Kind::plain;
  int32_t id = 0;  // blocked: the block size; opaque: the backend's number
  bool operator==(const Format&) const = default;

  static Format plain() { return {}; }
  static Format channels_last() { return {Kind::channels_last, 0}; }
  static Format blocked(int32_t block) { return {Kind::blocked, block}; }
  static Format opaque(int32_t id) { return {Kind::opaque, id}; }
  std::string to_string() const;
};

struct TensorDesc {
  Shape shape;
  DType dtype = DType::f32;
  Format format;
  // 0: dense. Otherwise the tensor is a channel slice of one with this many, whose other channels are in between.
  int64_t parent_channels = 0;
  bool operator==(const TensorDesc&) const = default;
  std::string to_string() const;  // "f32[8,64,35,35] blocked16"
};

// Bytes of a dense tensor in plain, channels_last or blocked format; opaque formats are sized by their backend.
size_t packed_bytes(const TensorDesc& desc);

// Bytes from the start of a tensor to its channel `channel`, which in blocked format starts a block.
int64_t channel_offset_bytes(const TensorDesc& desc, int64_t channel);

}  // namespace lockstep
