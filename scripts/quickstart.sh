#!/bin/bash
# From a fresh Debian 12 or 13 to a training run: installs, builds, and trains the bundled digits recipe on two ranks.
# Arguments go to the trainer, e.g. `scripts/quickstart.sh --train.epochs 2`.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
scripts/build.sh release

run=(mpirun -np 2 build/release/trainer --config digits "$@")
if [ "$(id -u)" -eq 0 ]; then
  # mpirun starts for root only with both of these.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
if [ "$(nproc)" -lt 2 ]; then
  run=(mpirun --oversubscribe "${run[@]:1}")
fi
printf '+ %s\n' "${run[*]}"
exec "${run[@]}"
