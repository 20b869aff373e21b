#include "lockstep/base/program_path.h"

#include <algorithm>
#include <system_error>

namespace lockstep {

namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

bool runs_in_build_tree() {
  std::error_code ignored;
  const fs::path tree = fs::weakly_canonical(LOCKSTEP_BUILD_TREE, ignored);
  const fs::path folder = program_folder();
  return !folder.empty() && std::ranges::mismatch(tree, folder).in1 == tree.end();
}

}  // namespace lockstep
