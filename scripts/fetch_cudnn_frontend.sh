#!/bin/bash
# Fetches the headers of cuDNN's C++ frontend, one pinned version, from PyPI into a directory (build/cudnn_frontend unless
# named), where the configuration looks for them. Needs python3 with pip. Does nothing if they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.32.0
sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
directory=${1:-build/cudnn_frontend}

if [ "$(cat "$directory/version" 2>/dev/null)" = "$version" ]; then
  echo "fetch_cudnn_frontend.sh: version $version is in $directory"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "nvidia-cudnn-frontend==$version --hash=sha256:$sha256" > "$scratch/requirements.txt"
# Many wheels contain the same headers. The digest above is that of this one, for any interpreter on this machine.
python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --require-hashes \
  --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_28_x86_64 \
  --dest "$scratch" --requirement "$scratch/requirements.txt"
python3 -m zipfile -e "$scratch"/*.whl "$scratch/wheel"
mkdir -p "$directory"
rm -rf "$directory/include"
cp -r "$scratch/wheel/include" "$directory/include"
echo "$version" > "$directory/version"
echo "fetch_cudnn_frontend.sh: version $version put into $directory"
