#!/bin/bash
# Configures and builds a preset of CMakePresets.json (release unless named) in build/<preset>.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
# With a CUDA compiler, the GPU plugin is built too. Its only dependency that no toolkit contains comes from PyPI.
if [ -n "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ]; then
  scripts/fetch_cudnn_frontend.sh || echo "build.sh: the GPU plugin needs these headers; see docs/gpu.md" >&2
fi
cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$(nproc)"
