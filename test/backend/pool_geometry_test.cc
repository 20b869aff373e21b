// The index arithmetic of the CUDA pools, against going through all windows and positions.
#include "backend/cuda/pool_geometry.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "lockstep/ops/ops.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

struct Geometry {
  Window window;
  int in_h, in_w;
};

constexpr Geometry kGeometries[] = {
    {{3, 3, 2, 2, 0, 0}, 9, 8},   {{3, 3, 1, 1, 1, 1}, 5, 4}, {{3, 3, 2, 2, 1, 1}, 7, 6}, {{2, 3, 3, 1, 0, 1}, 8, 5},
    {{5, 5, 3, 3, 0, 0}, 17, 17}, {{8, 8, 1, 1, 0, 0}, 8, 8}, {{1, 2, 3, 2, 0, 1}, 6, 6}, {{3, 3, 2, 2, 2, 2}, 3, 3}};

PoolShape shape_of(const Geometry& g, unsigned packs) {
  const auto out = [](int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
    return static_cast<int>((in + 2 * pad - kernel) / stride + 1);
  };
  const Window& w = g.window;
  PoolShape s{.kernel_h = static_cast<int>(w.kernel_h),
              .kernel_w = static_cast<int>(w.kernel_w),
              .stride_h = static_cast<int>(w.stride_h),
              .stride_w = static_cast<int>(w.stride_w),
              .pad_h = static_cast<int>(w.pad_h),
              .pad_w = static_cast<int>(w.pad_w),
              .in_h = g.in_h,
              .in_w = g.in_w,
              .out_h = out(g.in_h, w.kernel_h, w.stride_h, w.pad_h),
              .out_w = out(g.in_w, w.kernel_w, w.stride_w, w.pad_w),
              .packs = packs,
              .out_items = 0,
              .in_items = 0,
              .count_include_pad = false,
              .in_row = packs,
              .out_row = packs};
  s.out_items = static_cast<unsigned>(2 * s.out_h * s.out_w) * packs;  // two images
  s.in_items = static_cast<unsigned>(2 * s.in_h * s.in_w) * packs;
  return s;
}

using Link = std::pair<int64_t, int64_t>;  // of an output and an image position, by pack

}  // namespace

TEST_CASE("an image position gathers from exactly the windows that hold it, at the same position in them") {
  for (const Geometry& geometry : kGeometries) {
    const PoolShape s = shape_of(geometry, 3);
    INFO(s.kernel_h << "x" << s.kernel_w << " stride " << s.stride_h << "x" << s.stride_w << " of " << s.in_h << "x"
                    << s.in_w);
    std::map<Link, int> forward, backward;
    for (unsigned i = 0; i < s.out_items; ++i) {
      const Item item = item_of(i, s.packs, s.out_h, s.out_w);
      for_window(s, item, [&](int position, int64_t pixel) { forward[{i, pixel * s.packs + item.pack}] = position; });
    }
    for (unsigned i = 0; i < s.in_items; ++i) {
      const Item item = item_of(i, s.packs, s.in_h, s.in_w);
      for_covering(s, item, [&](int position, int64_t pixel, int, int) {
        backward[{pixel * s.packs + item.pack, i}] = position;
      });
    }
    CHECK(!forward.empty());
    CHECK((forward == backward));
  }
}

TEST_CASE("a window's positions are those of the image, each once, in row-major order") {
  for (const Geometry& geometry : kGeometries) {
    const PoolShape s = shape_of(geometry, 2);
    for (unsigned i = 0; i < s.out_items; ++i) {
      const Item out = item_of(i, s.packs, s.out_h, s.out_w);
      std::vector<int64_t> positions;
      for_window(s, out, [&](int, int64_t pixel) {
        positions.push_back(pixel);
        CHECK(pixel / (s.in_h * s.in_w) == out.n);
      });
      CHECK(std::ranges::is_sorted(positions));
      CHECK(std::set(positions.begin(), positions.end()).size() == positions.size());
      CHECK(static_cast<int>(positions.size()) == std::max(divisor(s, out.h, out.w), 0));
    }
  }
}
