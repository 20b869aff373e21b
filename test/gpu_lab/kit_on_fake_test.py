"""The GPU kit on the fake device: usage: kit_on_fake_test.py KIT FAKE_GPU_DIRECTORY [whole]

Without `whole`, some steps of a kind each.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

kit, programs, *whole = sys.argv[1:]
SOME = ("probe", "the plugin opens", "the device as cuDNN sees it", "every backend: known_values", "golden values: cifar10_cnn",
        "one rank with NCCL", "a captured step", "engines: cifar10_cnn bf16 4", "fusions: cifar10_cnn fp16 4")
# What the build machine may lack, by the beginnings of the steps' names.
OPTIONAL = ("memcheck", "racecheck", "ceilings", "pair", "compiled")
with tempfile.TemporaryDirectory() as out:
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{programs}:{os.environ.get('LD_LIBRARY_PATH', '')}", FAKE_GPU_DEVICES="2")
    seconds = 3000  # a step is started only if much of its limit is left
    command = [sys.executable, kit, "--small", "--build", programs, "--out", out, "--seconds", str(seconds), "--limit-factor", "10"]
    if whole:
        command += ["--mode", "smoke,accept,engines,pytorch"]
    else:
        command += ["--mode", "smoke,engines", "--step", "^(" + "|".join(SOME) + ")$"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=seconds + 10 if whole else 290)
    report = json.loads((pathlib.Path(out) / "report.json").read_text())
sys.path.insert(0, kit)
for case in __import__("accept").RACE_TESTS.split(","):
    listed = subprocess.run([f"{programs}/backend_test", "--list-tests", case], capture_output=True, text=True, check=False).stdout
    assert "\n1 matching test case\n" in listed, listed
steps = {step["step"]: step["verdict"] for step in report["steps"]}
assert whole or tuple(steps) == SOME, steps
bad = [name for name, verdict in steps.items() if verdict != "passed" and not (verdict == "skipped" and name.startswith(OPTIONAL))]
assert not bad, done.stdout
assert report["warning"].startswith("A fake device"), report["warning"]
assert done.returncode == 0, done.stderr
