#!/bin/bash
# Configures and builds a preset of CMakePresets.json (release unless named) in build/<preset>.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$(nproc)"
