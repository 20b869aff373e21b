#!/bin/bash
# Builds the release preset, runs the tests labelled slow (minutes each, hours on the fake device) and writes
# test/slow_tests.md.
set -euo pipefail
cd "$(dirname "$0")/.."

# Slurm for its test, clang for the fuzz targets.
scripts/install_dependencies.sh slurmctld slurmd slurm-client munge clang libclang-rt-dev
scripts/build.sh release
result=0
ctest --preset release --label-regex slow --output-junit slow.xml || result=$?
python3 scripts/slow_report.py test/slow_tests.md build/release build/release/slow.xml
exit "$result"
