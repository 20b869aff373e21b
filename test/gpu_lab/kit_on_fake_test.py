"""The GPU kit on the fake device: usage: kit_on_fake_test.py KIT FAKE_GPU_DIRECTORY"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

kit, programs = sys.argv[1:]
STEPS = ("probe", "the plugin opens", "the device as cuDNN sees it", "every backend: known_values", "golden values: cifar10_cnn",
         "engines: cifar10_cnn bf16 4")
with tempfile.TemporaryDirectory() as out:
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{programs}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    command = [sys.executable, kit, "--mode", "smoke,engines", "--small", "--build", programs, "--out", out, "--seconds", "280",
               "--limit-factor", "10", "--step", "^(" + "|".join(STEPS) + ")$"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=290)
    report = json.loads((pathlib.Path(out) / "report.json").read_text())
assert tuple(step["step"] for step in report["steps"]) == STEPS, report["steps"]
assert {step["verdict"] for step in report["steps"]} == {"passed"}, done.stdout
assert report["warning"].startswith("A fake device"), report["warning"]
assert done.returncode == 0, done.stderr
