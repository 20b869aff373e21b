"""An installation works without the build tree: usage: install_test.py CMAKE BUILD_FOLDER"""

import pathlib
import subprocess
import sys
import tempfile

cmake, build = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    prefix = pathlib.Path(folder) / "prefix"
    subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    explained = subprocess.run([prefix / "bin/trainer", "explain", "--config", "digits"], cwd=folder, check=True,
                               capture_output=True, text=True).stdout
    for split in ("train", "validation"):
        data = prefix / f"share/lockstep/data/digits/{split}.tfrecord"
        assert data.is_file(), f"{data} was not installed"
        assert str(data) in explained, f"the installed recipe does not use {data}:\n{explained}"
print("the installed recipe finds the installed data")
