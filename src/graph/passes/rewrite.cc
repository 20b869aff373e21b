#include "graph/passes/rewrite.h"

namespace lockstep {

std::span<const Rewrite> rewrites() {
  static constexpr Rewrite kTable[] = {
      {"flatten_concat", flatten_concat},
      {"hoist_pointwise", hoist_pointwise},
      {"merge_siblings", merge_siblings, true},
      {"fuse_norm_relu", fuse_norm_relu},
  };
  return kTable;
}

}  // namespace lockstep
