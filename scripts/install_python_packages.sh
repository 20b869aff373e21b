#!/bin/bash
# Installs programs that exported weights are meant for, so that the tests can ask them: from PyPI,
# into build/python, beside Debian's own packages. Without it those tests are left out, each with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(onnxruntime safetensors "$@")

/usr/bin/python3 -m venv --system-site-packages build/python
build/python/bin/python3 -m pip install --quiet --disable-pip-version-check "${packages[@]}"
build/python/bin/python3 -c "import h5py, numpy, onnxruntime, safetensors"
echo "install_python_packages.sh: ${packages[*]} are in build/python"
