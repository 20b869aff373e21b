#!/bin/bash
# Installs the programs that exported weights, event files and plots are meant for, so that the tests can ask them: from
# PyPI, into build/python, beside Debian's own packages. Without it those tests are left out, each with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(onnxruntime==1.32.0 safetensors==0.8.0 tensorboard==2.21.0 matplotlib==3.10.0
  prometheus_client==0.26.0 "$@")
# Where CUDA is compiled, a test reads the kernels' instructions.
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then packages+=(nvidia-cuda-nvdisasm==13.5.37); fi

/usr/bin/python3 -m venv --clear --system-site-packages build/python
# No other numpy than Debian's, which its h5py was built for.
/usr/bin/python3 -c "import numpy; print('numpy==' + numpy.__version__)" >build/python/constraints.txt
build/python/bin/python3 -m pip install --quiet --disable-pip-version-check --constraint build/python/constraints.txt \
  "${packages[@]}"
build/python/bin/python3 -c "import h5py, matplotlib, numpy, onnxruntime, prometheus_client, safetensors, tensorboard"
echo "install_python_packages.sh: ${packages[*]} are in build/python"
