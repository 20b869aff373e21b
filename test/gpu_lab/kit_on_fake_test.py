"""The GPU kit on the fake device: usage: kit_on_fake_test.py KIT FAKE_GPU_DIRECTORY CLASS

Of the classes, Whole runs every step of every mode, and Some a step of each kind.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

KIT, PROGRAMS = sys.argv[1:3]
ENVIRONMENT = dict(os.environ, LD_LIBRARY_PATH=f"{PROGRAMS}:{os.environ.get('LD_LIBRARY_PATH', '')}", FAKE_GPU_DEVICES="2")
SECONDS = 3000  # a step is started only if much of its limit is left
# What the build machine may lack.
MISSING = re.compile(r"no compute-sanitizer|has not \['torch")


def run(*command, **environment):
    return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False)


class KitCase(unittest.TestCase):
    def check_steps(self, *arguments):
        """Every step that the kit lists passes, or is skipped because this machine lacks what it needs."""
        kit = [sys.executable, KIT, "--small", "--build", PROGRAMS, *arguments]
        listed = [line.split("\t")[2] for line in run(*kit, "--list").stdout.splitlines()]
        with tempfile.TemporaryDirectory() as out:
            done = run(*kit, "--out", out, "--seconds", str(SECONDS), "--limit-factor", "10")
            report = json.loads((pathlib.Path(out) / "report.json").read_text())
        self.assertEqual([step["step"] for step in report["steps"]], listed)
        for step in report["steps"]:
            if step["verdict"] != "skipped" or not MISSING.search(step["remark"]):
                self.assertEqual(step["verdict"], "passed", f"{step}\n{done.stdout}")
        self.assertTrue(report["warning"].startswith("A fake device"), report["warning"])
        self.assertEqual(done.returncode, 0, done.stderr)
        return listed


class Some(KitCase):
    STEPS = ("probe", "the plugin opens", "the device as cuDNN sees it", "every backend: known_values",
             "golden values: cifar10_cnn", "a captured step", "one rank with NCCL, captured", "engines: cifar10_cnn bf16 4",
             "fusions: cifar10_cnn fp16 4")

    def test_steps_of_each_kind_pass(self):
        listed = self.check_steps("--mode", "smoke,engines", "--step", "^(" + "|".join(self.STEPS) + ")$")
        self.assertEqual(tuple(listed), self.STEPS)

    def test_cases_for_racecheck_exist(self):
        sys.path.insert(0, KIT)
        from accept import RACE_TESTS  # a module of the kit
        for case in RACE_TESTS.split(","):
            self.assertIn("\n1 matching test case\n", run(f"{PROGRAMS}/backend_test", "--list-tests", case).stdout)

    def test_an_engine_that_ends_the_device_is_named_after_what_was_timed_before(self):
        done = run(f"{PROGRAMS}/gpu_lab", "engines", "cifar10_cnn", "bf16", "4", FAKE_GPU_PLAN_FAULT="150")
        self.assertEqual(done.returncode, 1, done)
        self.assertGreater(len(done.stdout.splitlines()), 10, done)
        for pattern in (r"\Aengines\t\d", r"\nleft out\t[1-9]", r"\nerror: eng.* an illegal memory access"):
            self.assertRegex(done.stderr, pattern)

    def test_an_operation_that_throws_hides_no_other_in_any_precision(self):
        printed = run(f"{PROGRAMS}/backend_test", "operations on a GPU agree*", FAKE_GPU_FAULT="300").stdout
        for precision in ("float32", "tf32", "bf16", "fp16"):
            self.assertIn(f"\n  {precision}\n", printed)
        self.assertGreater(printed.count("explicitly with messages"), 10)


class Whole(KitCase):
    def test_all_modes_pass(self):
        listed = self.check_steps("--mode", "smoke,accept,engines,pytorch")
        self.assertGreater(len(listed), 30)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
