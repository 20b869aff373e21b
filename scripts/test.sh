#!/bin/bash
# Installs what is missing, builds a preset (release unless named) and runs every test that is not labelled slow.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
scripts/install_dependencies.sh
scripts/build.sh "$preset"
# Two at a time; those that start mpirun count as two (PROCESSORS), because they bring processes enough.
ctest --preset "$preset" --label-exclude slow --parallel 2
