#!/bin/bash
# Tests a machine with a GPU, in calls of a few minutes and without a network:
#
#     scripts/gpu_acceptance.sh --mode smoke [--bundle DIRECTORY | --build DIRECTORY] [--out DIRECTORY]
#
# --help names the modes and options, --list the steps and their limits. Programs are those of a bundle (scripts/bundle.sh; the
# archive has a gpu_acceptance.sh of its own, which needs no checkout) or of a build directory (default build/release).
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_kit" "$@"
