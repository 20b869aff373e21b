"""The GPU kit on the fake device: usage: kit_on_fake_test.py KIT FAKE_GPU_DIRECTORY [whole]

Without `whole`, some steps of a kind each. In either case also the programs of the kit when a fault ends the device.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

kit, programs, *whole = sys.argv[1:]
SOME = ("probe", "the plugin opens", "the device as cuDNN sees it", "every backend: known_values", "golden values: cifar10_cnn",
        "a captured step", "one rank with NCCL, captured", "engines: cifar10_cnn bf16 4", "fusions: cifar10_cnn fp16 4")
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

# An engine that ends the device is named, and what was timed before it is printed.
lab = dict(environment, FAKE_GPU_PLAN_FAULT="150")
done_lab = subprocess.run([f"{programs}/gpu_lab", "engines", "cifar10_cnn", "bf16", "4"], env=lab, capture_output=True, text=True, check=False)
assert done_lab.returncode == 1 and len(done_lab.stdout.splitlines()) > 10, done_lab
assert done_lab.stderr.startswith("engines\t0\t") and "left out\t5" in done_lab.stderr, done_lab.stderr
assert "error: eng" in done_lab.stderr and "an illegal memory access" in done_lab.stderr, done_lab.stderr

# One operation that throws does not hide what the others do, in any precision.
tests = dict(environment, FAKE_GPU_FAULT="300")
operations = subprocess.run([f"{programs}/backend_test", "operations on a GPU agree*"], env=tests, capture_output=True, text=True,
                            check=False).stdout
named = {precision for precision in ("float32", "tf32", "bf16", "fp16") if f"\n  {precision}\n" in operations}
assert len(named) == 4 and operations.count("explicitly with messages") > 10, operations
assert report["warning"].startswith("A fake device"), report["warning"]
assert done.returncode == 0, done.stderr
