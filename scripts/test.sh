#!/bin/bash
# Installs what is missing, builds a preset (release unless named) and runs every test that is not labelled slow.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
scripts/install_dependencies.sh
scripts/build.sh "$preset"
# Twice as many at a time as there are cores, because tests that start mpirun wait most of the time; those that keep
# several cores busy count as two (PROCESSORS). Threads that wait for work must leave the cores to others.
export OMP_WAIT_POLICY=passive
ctest --preset "$preset" --label-exclude slow --parallel $((2 * $(nproc)))
