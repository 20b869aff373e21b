#!/bin/bash
# What a machine with a GPU has to show, in at most eight minutes and without a network: op tests, golden values, one
# rank over NCCL, two ranks sharing the GPU, kill and resume, checkpoints between CPU and GPU, compute-sanitizer, then
# throughput and memory beside PyTorch. Writes report.md and report.json:
#
#     scripts/gpu_acceptance.sh [--bundle FOLDER | --build FOLDER] [--out FOLDER]
#
# Takes a carried bundle (scripts/bundle.sh, default build/bundle), else a build folder (default build/release), which is
# built first where it does not exist.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" scripts/bench/gpu_acceptance.py "$@"
