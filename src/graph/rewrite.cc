#include "lockstep/graph/rewrite.h"

namespace lockstep {

std::span<const Rewrite> rewrites() {
  static constexpr Rewrite kTable[] = {
      {"fuse_norm_relu", fuse_norm_relu},
  };
  return kTable;
}

}  // namespace lockstep
