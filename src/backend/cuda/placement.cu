#include "backend/cuda/placement.h"

#include "backend/cuda/device.h"

namespace lockstep::cuda {
namespace {

constexpr int kUnitsOfBlock = 32, kRowsOfBlock = 8;
constexpr int64_t kMaxRowBlocks = 65535;  // what a grid's y and z may be

// All counts are in units.
struct UnitCopy {
  int64_t rows, units, from_row, from_begin, to_row, to_begin;
};

template <class Unit>
__global__ void copy_units(UnitCopy copy, const Unit* from, Unit* to) {
  for (int64_t row = int64_t{blockIdx.y} * kRowsOfBlock + threadIdx.y; row < copy.rows;
       row += int64_t{gridDim.y} * kRowsOfBlock) {
    for (int64_t i = int64_t{blockIdx.x} * kUnitsOfBlock + threadIdx.x; i < copy.units;
         i += int64_t{gridDim.x} * kUnitsOfBlock) {
      to[row * copy.to_row + copy.to_begin + i] = from[row * copy.from_row + copy.from_begin + i];
    }
  }
}

// Launches the copy in units of this size when everything is a multiple of it.
template <class Unit>
bool launch_in(cudaStream_t stream, const ChannelCopy& copy, const void* from, void* to) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
  const auto bytes = static_cast<int64_t>(copy.element_bytes);
  for (int64_t count : {copy.channels, copy.from_channels, copy.from_begin, copy.to_channels, copy.to_begin}) {
    if (count * bytes % kBytes != 0) return false;
  }
  const auto units = [&](int64_t count) { return count * bytes / kBytes; };
  const UnitCopy in_units{copy.rows,
                          units(copy.channels),
                          units(copy.from_channels),
                          units(copy.from_begin),
                          units(copy.to_channels),
                          units(copy.to_begin)};
  const dim3 grid(blocks_for(in_units.units, kUnitsOfBlock),
                  static_cast<unsigned>(std::min((copy.rows + kRowsOfBlock - 1) / kRowsOfBlock, kMaxRowBlocks)));
  copy_units<<<grid, dim3(kUnitsOfBlock, kRowsOfBlock), 0, stream>>>(in_units, static_cast<const Unit*>(from),
                                                                     static_cast<Unit*>(to));
  return true;
}

// The part of the work that a thread, or a block, does: the first, and the distance to the next.
struct Share {
  int64_t first, step;
};
__device__ inline Share share_of_thread() { return {thread_index(), grid_threads()}; }

// In packs, and one by one what is left over.
template <int kLanes, class From, class To>
__device__ void convert_flat(int64_t count, Share share, const From* from, To* to) {
  const int64_t packs = count / kLanes;
  for (int64_t i = share.first; i < packs; i += share.step) {
    float values[kLanes];
    load<kLanes>(from + i * kLanes, values);
    store<kLanes>(values, to + i * kLanes);
  }
  const int64_t rest = packs * kLanes + share.first;
  if (rest < count) to[rest] = from_float<To>(to_float(from[rest]));
}

template <int kLanes, class From, class To>
__global__ void convert(int64_t count, const From* from, To* to) {
  convert_flat<kLanes>(count, share_of_thread(), from, to);
}

// Each matrix [rows, columns] of a batch becomes [columns, rows], through tiles in shared memory, so that reading and
// writing are both along lines.
constexpr int kTile = 32;
struct Matrices {
  int64_t count, rows, columns;
};
template <class From, class To>
__global__ void transpose(Matrices shape, const From* from, To* to) {
  __shared__ float tile[kTile][kTile + 1];
  const int64_t row = int64_t{blockIdx.y} * kTile, column = int64_t{blockIdx.x} * kTile;
  for (int64_t n = blockIdx.z; n < shape.count; n += gridDim.z) {
    const int64_t base = n * shape.rows * shape.columns;
    for (int y = threadIdx.y; y < kTile; y += kRowsOfBlock) {
      const int64_t r = row + y, c = column + threadIdx.x;
      if (r < shape.rows && c < shape.columns) tile[y][threadIdx.x] = to_float(from[base + r * shape.columns + c]);
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kRowsOfBlock) {
      const int64_t r = row + threadIdx.x, c = column + y;
      if (r < shape.rows && c < shape.columns) to[base + c * shape.rows + r] = from_float<To>(tile[threadIdx.x][y]);
    }
    __syncthreads();
  }
}

// The same where one side of the matrices is so short that tiles would be mostly empty, as those of weights are, with
// few taps: a block takes a slice of the long side, [slice, few] of memory on the one side and [few, slice] on the
// other, both of which are read and written along lines.
constexpr int64_t kFew = 32;
constexpr int kSliceElements = 2048;
struct NarrowMatrices {
  int64_t count, many, few, slice;  // slice: of `many`
  bool gathers;                     // from [few, many] to [many, few], not the other way round
};
// `piece`: shared memory, [slice][few].
template <class From, class To>
__device__ void transpose_slice(const NarrowMatrices& shape, int64_t number, Share matrices, const From* from, To* to,
                                float* piece) {
  const int64_t first = number * shape.slice;
  const int slice = static_cast<int>(min(shape.slice, shape.many - first)), few = static_cast<int>(shape.few);
  for (int64_t n = matrices.first; n < shape.count; n += matrices.step) {
    const int64_t base = n * shape.many * shape.few;
    for (int i = threadIdx.x; i < slice * few; i += kThreads) {
      const int along = i % slice, across = i / slice;
      if (shape.gathers) {
        piece[along * few + across] = to_float(from[base + across * shape.many + first + along]);
      } else {
        piece[i] = to_float(from[base + first * few + i]);
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < slice * few; i += kThreads) {
      const int along = i % slice, across = i / slice;
      if (shape.gathers) {
        to[base + first * few + i] = from_float<To>(piece[i]);
      } else {
        to[base + across * shape.many + first + along] = from_float<To>(piece[along * few + across]);
      }
    }
    __syncthreads();
  }
}

template <class From, class To>
__global__ void transpose_few(NarrowMatrices shape, const From* from, To* to) {
  __shared__ float piece[kSliceElements];
  transpose_slice(shape, blockIdx.x, {blockIdx.z, gridDim.z}, from, to, piece);
}

// Between any two of planes, pixels, padded pixels and rows of pairs, where there are too few channels to fill tiles
// (images): one thread for each pixel that is written.
constexpr int64_t kFewChannels = 4;
constexpr int kPadded = 8;  // the most; or 4
template <class From, class To>
__device__ void interleave_pixels(const Conversion& what, Share share, const From* from, To* to) {
  const int64_t from_channels = what.channels + what.from_padding, to_channels = what.channels + what.to_padding;
  const int64_t from_width = stored_width(what.from_pairs, what.width);
  const int64_t to_width = stored_width(what.to_pairs, what.width), rows = what.samples * what.pixels / what.width;
  for (int64_t i = share.first; i < rows * to_width; i += share.step) {
    const int64_t row = i / to_width, column = i % to_width, pixel = row * what.width + column;
    const auto in_plane = [&](int64_t c) {
      return (pixel / what.pixels * what.channels + c) * what.pixels + pixel % what.pixels;
    };
    float values[kPadded] = {};
#pragma unroll
    for (int c = 0; c < kPadded; ++c) {
      if (c >= what.channels || column >= what.width) continue;
      const int64_t at = what.from_channels_last ? (row * from_width + column) * from_channels + c : in_plane(c);
      values[c] = to_float(from[at]);
    }
    if (what.to_padding > 0 && to_channels == kPadded) {
      store<kPadded>(values, to + i * kPadded);
      continue;
    }
    if (what.to_padding > 0) {
      const float four[kPadded / 2] = {values[0], values[1], values[2], values[3]};
      store<kPadded / 2>(four, to + i * (kPadded / 2));
      continue;
    }
#pragma unroll
    for (int c = 0; c < kPadded; ++c) {
      if (c < what.channels)
        to[what.to_channels_last ? i * what.channels + c : in_plane(c)] = from_float<To>(values[c]);
    }
  }
}

template <class From, class To>
__global__ void interleave(Conversion what, const From* from, To* to) {
  interleave_pixels(what, share_of_thread(), from, to);
}

// How a conversion is done.
enum class Way : uint8_t { interleaved, flat, narrow, tiles };
Way way_of(const Conversion& what) {
  const bool same_order = what.from_channels_last == what.to_channels_last || what.channels == 1 || what.pixels == 1;
  const bool pads = what.from_padding > 0 || what.to_padding > 0 || what.from_pairs || what.to_pairs;
  if (pads || (!same_order && what.to_channels_last && what.channels <= kFewChannels)) return Way::interleaved;
  if (same_order) return Way::flat;
  return what.pixels <= kFew && what.channels > what.pixels ? Way::narrow : Way::tiles;
}

NarrowMatrices narrow_matrices(const Conversion& what) {
  const int64_t slice = std::min(kSliceElements / what.pixels, what.channels);
  return {what.samples, what.channels, what.pixels, slice, what.from_channels_last};
}
int64_t slices_of(const NarrowMatrices& shape) { return (shape.many + shape.slice - 1) / shape.slice; }

// Conversions side by side in one grid; each has the blocks from its first one on.
constexpr int kMostPieces = 44;  // as many as the arguments of a kernel, 4 kB, have room for
constexpr int64_t kElementsOfBlock = 4096;
struct Piece {
  ConversionOf of;
  Way way;
  bool packs;  // of 16 bytes, of a flat one
  unsigned first_block, blocks;
};
struct Pieces {
  Piece piece[kMostPieces];
  int count;
};
static_assert(sizeof(Pieces) <= 4096);

template <class From, class To>
__global__ void convert_pieces(Pieces pieces) {
  __shared__ float shared[kSliceElements];
  int number = 0;
  while (number + 1 < pieces.count && pieces.piece[number + 1].first_block <= blockIdx.x) ++number;
  const Piece& piece = pieces.piece[number];
  const Conversion& what = piece.of.what;
  const auto* from = static_cast<const From*>(piece.of.from);
  auto* to = static_cast<To*>(piece.of.to);
  const int64_t block = blockIdx.x - piece.first_block;
  const Share threads{block * kThreads + threadIdx.x, int64_t{piece.blocks} * kThreads};
  if (piece.way == Way::interleaved) {
    interleave_pixels(what, threads, from, to);
  } else if (piece.way == Way::narrow) {
    const NarrowMatrices shape{what.samples, what.channels, what.pixels,
                               min(kSliceElements / what.pixels, what.channels), what.from_channels_last};
    const int64_t slices = (shape.many + shape.slice - 1) / shape.slice;
    transpose_slice(shape, block % slices, {block / slices, piece.blocks / slices}, from, to, shared);
  } else {
    constexpr int kLanes = std::max(kWidest<From>, kWidest<To>);
    const int64_t count = what.samples * what.channels * what.pixels;
    if (piece.packs) {
      convert_flat<kLanes>(count, threads, from, to);
    } else {
      convert_flat<1>(count, threads, from, to);
    }
  }
}

// Whole slices of narrow ones.
unsigned blocks_of(const Conversion& what, Way way) {
  const int64_t blocks =
      std::clamp<int64_t>(what.samples * what.channels * what.pixels / kElementsOfBlock, 1, kMaxBlocks / kMostPieces);
  if (way != Way::narrow) return static_cast<unsigned>(blocks);
  const int64_t slices = slices_of(narrow_matrices(what));
  return static_cast<unsigned>(slices * std::clamp<int64_t>(blocks / slices, 1, what.samples));
}

void launch_pieces(cudaStream_t stream, const Pieces& pieces) {
  if (pieces.count == 0) return;
  const Piece& last = pieces.piece[pieces.count - 1];
  const unsigned blocks = last.first_block + last.blocks;
  const Conversion& what = pieces.piece[0].of.what;
  if (what.from == DType::f32) {
    with_element(what.to, [&](auto element) {
      convert_pieces<float, decltype(element)><<<blocks, kThreads, 0, stream>>>(pieces);
    });
  } else {
    with_element(what.from, [&](auto element) {
      convert_pieces<decltype(element), float><<<blocks, kThreads, 0, stream>>>(pieces);
    });
  }
}

template <class From, class To>
void launch_typed(cudaStream_t stream, const Conversion& what, const From* from, To* to) {
  const int64_t count = what.samples * what.channels * what.pixels;
  const Way way = way_of(what);
  if (way == Way::interleaved) {
    interleave<<<blocks_for(what.samples * what.pixels), kThreads, 0, stream>>>(what, from, to);
  } else if (way == Way::flat) {
    constexpr int kLanes = std::max(kWidest<From>, kWidest<To>);
    if (begins_pack(from) && begins_pack(to)) {
      convert<kLanes><<<blocks_for(count / kLanes), kThreads, 0, stream>>>(count, from, to);
    } else {
      convert<1><<<blocks_for(count), kThreads, 0, stream>>>(count, from, to);
    }
  } else if (way == Way::narrow) {
    const NarrowMatrices shape = narrow_matrices(what);
    const dim3 grid(static_cast<unsigned>(slices_of(shape)), 1,
                    static_cast<unsigned>(std::min(what.samples, kMaxRowBlocks)));
    transpose_few<<<grid, kThreads, 0, stream>>>(shape, from, to);
  } else {
    const bool to_last = what.to_channels_last;
    const Matrices shape{what.samples, to_last ? what.channels : what.pixels, to_last ? what.pixels : what.channels};
    const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
    const dim3 grid(tiles(shape.columns), tiles(shape.rows),
                    static_cast<unsigned>(std::min(shape.count, kMaxRowBlocks)));
    transpose<<<grid, dim3(kTile, kRowsOfBlock), 0, stream>>>(shape, from, to);
  }
}

}  // namespace

void launch_channel_copy(cudaStream_t stream, const ChannelCopy& copy, const void* from, void* to) {
  launch_in<uint4>(stream, copy, from, to) || launch_in<uint2>(stream, copy, from, to) ||
      launch_in<uint32_t>(stream, copy, from, to) || launch_in<uint16_t>(stream, copy, from, to);
}

// One of the two types is f32, or both are the same.
void launch_convert(cudaStream_t stream, const Conversion& what, const void* from, void* to) {
  if (what.from == what.to) {
    with_element(what.from, [&](auto element) {
      using T = decltype(element);
      launch_typed(stream, what, static_cast<const T*>(from), static_cast<T*>(to));
    });
  } else if (what.from == DType::f32) {
    with_element(what.to, [&](auto element) {
      launch_typed(stream, what, static_cast<const float*>(from), static_cast<decltype(element)*>(to));
    });
  } else {
    with_element(what.from, [&](auto element) {
      launch_typed(stream, what, static_cast<const decltype(element)*>(from), static_cast<float*>(to));
    });
  }
}

void launch_convert_many(cudaStream_t stream, std::span<const ConversionOf> conversions) {
  Pieces pieces{};
  unsigned block = 0;
  for (const ConversionOf& one : conversions) {
    const Way way = way_of(one.what);
    if (way == Way::tiles) {
      launch_convert(stream, one.what, one.from, one.to);
      continue;
    }
    if (pieces.count == kMostPieces) {
      launch_pieces(stream, pieces);
      pieces.count = 0;
      block = 0;
    }
    const unsigned blocks = blocks_of(one.what, way);
    pieces.piece[pieces.count++] = {one, way, begins_pack(one.from) && begins_pack(one.to), block, blocks};
    block += blocks;
  }
  launch_pieces(stream, pieces);
}

}  // namespace lockstep::cuda
