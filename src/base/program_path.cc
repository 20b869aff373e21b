#include "lockstep/base/program_path.h"

#include <algorithm>
#include <system_error>

namespace lockstep {

namespace fs = std::filesystem;

fs::path program_directory() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

bool runs_in_build_tree() {
  std::error_code ignored;
  const fs::path tree = fs::weakly_canonical(LOCKSTEP_BUILD_TREE, ignored);
  const fs::path directory = program_directory();
  return !directory.empty() && std::ranges::mismatch(tree, directory).in1 == tree.end();
}

}  // namespace lockstep
