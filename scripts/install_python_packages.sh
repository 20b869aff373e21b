#!/bin/bash
# Installs from PyPI the programs that read exported weights, event files and metrics, so that the tests can use them:
# into build/python, in addition to Debian's own packages. Without them, those tests are skipped, each with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(onnxruntime==1.32.0 safetensors==0.8.0 tensorboard==2.21.0 matplotlib==3.10.0
  prometheus_client==0.26.0 "$@")
# If CUDA is compiled, a test reads the kernels' instructions.
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then packages+=(nvidia-cuda-nvdisasm==13.5.37); fi

/usr/bin/python3 -m venv --clear --system-site-packages build/python
# The numpy must be Debian's, for which Debian's h5py was built.
/usr/bin/python3 -c "import numpy; print('numpy==' + numpy.__version__)" >build/python/constraints.txt
build/python/bin/python3 -m pip install --quiet --disable-pip-version-check --constraint build/python/constraints.txt \
  "${packages[@]}"
build/python/bin/python3 -c "import h5py, matplotlib, numpy, onnxruntime, prometheus_client, safetensors, tensorboard"
echo "install_python_packages.sh: ${packages[*]} are in build/python"
