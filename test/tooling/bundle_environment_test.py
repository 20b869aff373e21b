"""A bundle (scripts/bundle.sh) finds CUDA's libraries where Python's packages nvidia-* have them, when its starters run:

    bundle_environment_test.py SOURCE_DIRECTORY
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


def written_by_bundle(marker):
    """What scripts/bundle.sh writes between two lines of this marker."""
    text = (ROOT / "scripts/bundle.sh").read_text(encoding="utf-8")
    return re.search(rf"<<'{marker}'\n(.*?)^{marker}$", text, re.S | re.M)[1]


class BundleEnvironment(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.bundle = self.directory / "bundle"
        (self.bundle / "lib/lockstep").mkdir(parents=True)
        (self.bundle / "share").mkdir()
        (self.bundle / "lib/lockstep/lockstep_cuda.so").touch()
        (self.bundle / "environment").write_text(written_by_bundle("ENVIRONMENT"))
        (self.bundle / "share/cuda_libraries.py").write_text(written_by_bundle("LIBRARIES"))
        self.packages = self.directory / "packages/nvidia"
        for name, library in (("cu13", "libcudart.so.13"), ("cudnn", "libcudnn.so.9"), ("nccl", "libnccl.so.2")):
            (self.packages / name / "lib").mkdir(parents=True)
            (self.packages / name / "lib" / library).touch()
        (self.packages / "cuda_runtime/include").mkdir(parents=True)  # no libraries

    def in_bundle(self, command, **environment):
        """What a shell command prints that the bundle's environment was set for."""
        settings = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        settings.update({"PYTHON": sys.executable, "PYTHONPATH": str(self.packages.parent)}, **environment)
        script = f'here="{self.bundle}"; . "$here/environment"; {command}'
        done = subprocess.run(["sh", "-c", script], env=settings, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.strip() or done.stderr.strip()

    def test_the_directories_of_all_packages_come_first_and_once(self):
        expected = [str(self.packages / name / "lib") for name in ("cu13", "cudnn", "nccl")]
        found = self.in_bundle('. "$here/environment"; echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH="/the/driver").split(":")
        self.assertEqual(found[:3], expected)  # of a second starter, as a rank is, none once more
        self.assertEqual(found[-1], "/the/driver")
        self.assertEqual(len(found), len(set(found)))

    def test_a_library_of_a_package_can_be_opened_by_its_name(self):
        compiler = shutil.which("cc") or self.skipTest("no C compiler")
        library = self.packages / "nccl/lib/libnccl_of_this_test.so.2"
        subprocess.run([compiler, "-shared", "-o", library, "-x", "c", "/dev/null"], check=True)
        opens = f'{sys.executable} -c "import ctypes; ctypes.CDLL(\'{library.name}\'); print(\'opened\')"'
        self.assertEqual(self.in_bundle(opens), "opened")
        self.assertIn("cannot open shared object file", self.in_bundle(opens, LOCKSTEP_CUDA_LIBRARIES=""))

    def test_a_bundle_without_the_plugin_and_a_python_without_packages_change_nothing(self):
        shutil.rmtree(self.packages)
        self.assertNotIn("packages", self.in_bundle('echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH="/mine"))
        (self.bundle / "lib/lockstep/lockstep_cuda.so").unlink()
        self.assertEqual(self.in_bundle('echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH="/mine"), "/mine")


if __name__ == "__main__":
    unittest.main()
