#!/bin/bash
# From a fresh Debian 12 or 13 to a training run: installs, builds the program, and trains the bundled digits recipe on two
# ranks. Arguments go to the trainer, e.g. `scripts/quickstart.sh --train.epochs 2`.
set -euo pipefail
cd "$(dirname "$0")/.."

cores=$(nproc)
echo "quickstart.sh: installs packages, compiles about 270 files (one to five minutes on two cores; here are $cores) and"
echo "quickstart.sh: trains Inception-v3 on handwritten digits for a few minutes; later runs start with the training"

scripts/install_dependencies.sh --without-tests

# Builds only the program, and the GPU plugin only if there is a driver. scripts/build.sh and scripts/test.sh add the rest.
options=(-DBUILD_TESTING=OFF -DLOCKSTEP_CUDA=OFF)
if /sbin/ldconfig -p | grep "libcuda\.so\.1 " >/dev/null; then
  options=(-DBUILD_TESTING=OFF)
  if [ -n "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ]; then
    scripts/fetch_cudnn_frontend.sh || echo "quickstart.sh: no GPU plugin without these headers; see docs/gpu.md" >&2
  fi
fi
cmake --preset release "${options[@]}"
cmake --build --preset release --target trainer lockstep --parallel "$cores"

exec build/release/lockstep run -np 2 --config digits "$@"
