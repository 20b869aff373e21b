#!/bin/bash
# Installs the packages that building, running and testing Lockstep need, from Debian's own archive (12 or 13):
#
#     install_dependencies.sh [--without-tests] [PACKAGE...]
#
# Runs as root or through sudo, asks nothing, and may be run again. --without-tests installs only those for building
# and running. PACKAGEs are installed in addition.
set -euo pipefail

packages=(
  # tools
  g++ cmake ninja-build
  # libraries: message passing, checkpoints, CPU kernels
  libopenmpi-dev openmpi-bin libhdf5-dev libdnnl-dev
  # data formats
  libjpeg62-turbo-dev libpng-dev zlib1g-dev
  # command line, configuration, metrics, text
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev
)
test_packages=(
  # the framework, independent readers of checkpoints, fault injection, packing; ccache makes the next build quick
  catch2 hdf5-tools python3 python3-h5py python3-numpy python3-pil python3-venv strace dpkg-dev file git ccache
)
if [ "${1:-}" = --without-tests ]; then
  shift
else
  packages+=("${test_packages[@]}")
fi
packages+=("$@")

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_dependencies.sh: run as root, or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@" </dev/null
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "install_dependencies.sh: all ${#packages[@]} packages are installed"
  exit 0
fi
apt_get -q update
apt_get -q install -y --no-install-recommends "${missing[@]}"
