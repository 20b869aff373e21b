"""Common parts of the steps of a run: programs, time, the report, and runs of the trainer with their results."""

import contextlib
import json
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Callable, NamedTuple

import machine
from children import Children, Failed, Skipped
from report import Report

LEAST_SHARE = 0.5  # of its limit: with less time left, a step is not started
IN_BUILD_TREE = {"trainer": "trainer", "backend_test": "test/backend/backend_test", "golden_test": "test/models/golden_test",
                 "gpu_lab": "test/gpu_lab/gpu_lab"}


class Step(NamedTuple):
    mode: str
    name: str
    seconds: float           # its limit
    work: Callable[[], str]  # returns a remark, or raises Failed or Skipped
    bars: bool = False       # whether its failure leaves other modes without sense


def commit(root):
    """The version of the programs: a bundle contains it, a build has that of this checkout."""
    version = root / "VERSION"
    if version.exists():
        return version.read_text(errors="replace").strip()
    git = ["git", "-C", pathlib.Path(__file__).parent, "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


class Kit:
    def __init__(self, arguments, modes):
        self.arguments = arguments
        self.device = arguments.device
        self.begin = self.now()
        self.deadline = self.begin
        self.current = None
        self.report = Report(pathlib.Path(arguments.out).resolve(), modes)
        for left in ("log.txt", "device.json", "layers.tsv", "engines.tsv", "fusions.tsv"):  # by an earlier run
            (self.report.out / left).unlink(missing_ok=True)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu."))
        self.root = pathlib.Path(arguments.bundle or arguments.build).resolve()
        self.report.facts["system"] = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        self.report.facts["commit"] = commit(self.root)
        self.share = self.root / "share" if arguments.bundle else pathlib.Path(__file__).resolve().parents[2] / "test"
        # Ranks of one machine, as root, more of them than cores.
        self.environment = dict(os.environ, LOCKSTEP_GOLDEN_DIR=str(self.share / "golden"), PYTHONUNBUFFERED="1",
                                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
        self.environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.scratch / "inductor")
        self.environment["PYTHON"] = self.python()  # a bundle asks it for CUDA's libraries
        self.budget = self.share / ("step_budget.tsv" if arguments.bundle else "models/step_budget.tsv")
        self.ceilings = {"copy": 4.3e12, "product": 650e12}  # as in predicted_time.h, until they are measured
        self.without_pytorch = ""  # or why there is none
        self.few = 6 if arguments.small else 20  # steps of short runs
        self.recipe = {"--config": "digits"}
        if arguments.small:
            self.recipe.update({"--model.name": "cifar10_cnn", "--model.image_size": 24, "--train.batch_size": 4})
        self.children = Children(self.report.out, self.scratch, self.environment, self.note_device)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.stop)

    # ---- time and verdicts

    @staticmethod
    def now():
        return time.monotonic()

    def left(self):
        return self.arguments.seconds - (self.now() - self.begin)

    def step_left(self):
        return self.deadline - self.now()

    def stop(self, number, _):
        """Handles a signal: saves the report before it kills programs, because the sender may not wait so long."""
        name = signal.Signals(number).name
        self.report.end = f"stopped by {name}"
        if self.current is not None:
            self.report.steps[self.current].update(verdict="stopped", remark=f"by {name}")
        self.report.save()
        with contextlib.suppress(OSError):
            self.note_device(self.children.output.read_text(errors="replace"))
            self.report.save()
        self.children.kill_all()
        shutil.rmtree(self.scratch, ignore_errors=True)
        os._exit(3)

    def run_steps(self, steps):
        """Runs all steps in their order. After the failure of a step that bars the others, only the rest of its mode runs."""
        self.report.plan(steps)
        self.prepare_machine()
        barred_by = None
        for index, step in enumerate(steps):
            if barred_by and step.mode != barred_by.mode and not self.arguments.go_on:
                self.report.set(index, "skipped", f"\"{barred_by.name}\" failed; --go-on runs this all the same")
                continue
            self.run_step(index, step)
            if step.bars and self.report.steps[index]["verdict"] in ("FAILED", "BROKEN"):
                barred_by = barred_by or step
        self.report.end = "ended"
        self.report.save()

    def prepare_machine(self):
        self.report.facts["loopback interface"] = machine.loopback()
        if self.device == "gpu":
            self.report.facts["cards held open"] = len(machine.hold_cards())
            machine.read_ahead(self.cuda_directories(), self.report.facts)

    def cuda_directories(self):
        """Where our programs find CUDA's libraries."""
        if not self.arguments.bundle:
            return [*self.environment.get("LD_LIBRARY_PATH", "").split(":"), "/usr/local/cuda/lib64"]
        try:
            return subprocess.run([self.root / "run", "/bin/sh", "-c", 'echo "$LD_LIBRARY_PATH"'], env=self.environment, check=True,
                                  capture_output=True, text=True, timeout=20).stdout.strip().split(":")
        except (OSError, subprocess.SubprocessError):
            return []

    def run_step(self, index, step):
        self.current = index
        self.report.set(index, "running")
        self.environment["LOCKSTEP_KIT_STEP"] = step.name
        begin = self.now()
        left = self.left()
        self.deadline = begin + min(step.seconds, left)
        try:
            if left < LEAST_SHARE * step.seconds:
                raise Skipped(f"{max(0, left):.0f} s left of the {step.seconds:.0f} s it may need")
            verdict, remark = "passed", str(step.work() or "")
        except Skipped as reason:
            verdict, remark = "skipped", str(reason)
        except Failed as error:
            verdict, remark = "FAILED", str(error)
            if left < step.seconds and self.left() <= 0:
                remark += " (the time of the whole run was over)"
        except Exception as error:  # pylint: disable=broad-except; a mistake of this script costs one step, not the run
            verdict, remark = "BROKEN", f"{type(error).__name__}: {error}; {traceback.format_exc().splitlines()[-3].strip()}"
            self.children.kill()
        seconds = self.now() - begin
        self.report.set(index, verdict, remark, seconds)
        self.current = None
        print(f"[{self.now() - self.begin:5.0f} s] {verdict:7} {step.name} ({seconds:.1f} s): {remark[:300]}", flush=True)

    # ---- programs

    def program(self, name):
        """Returns the command that starts one of our programs."""
        if not self.arguments.bundle:
            beside = self.root / name  # the layout of the fake device's programs
            path = beside if beside.exists() else self.root / IN_BUILD_TREE[name]
            start = [path]
        elif name in ("trainer", "mpirun"):
            path = self.root / name
            start = [path]
        else:
            path = self.root / "bin" / name
            start = [self.root / "run", path]
        if not path.exists():
            raise Skipped(f"there is no {path}")
        return start

    def mpirun(self):
        return self.program("mpirun") if self.arguments.bundle else ["mpirun"]

    def run(self, command, seconds=math.inf, **options):
        """Runs the command within the remaining time of the step."""
        return self.children.run(command, max(0, min(seconds, self.step_left())), **options)

    def catch_tests(self, program, which, before=()):
        """Runs cases of a test program, named by a Catch2 test specification; `before`, such as memcheck, starts the program.
        Passed checks are printed as well, so that their errors and bounds are in the log."""
        text = self.run([*before, *self.program(program), "-s", "-d", "yes", *which])
        passed = re.findall(r"All tests passed \((\d+) assertions?.*", text)
        if "skipped, no usable GPU" in text:
            reason = "no usable GPU" + text.partition("skipped, no usable GPU")[2].splitlines()[0]
            raise Failed(reason) if self.device == "gpu" else Skipped(reason)
        if not passed or int(passed[-1]) == 0:
            raise Failed("nothing was tested: " + (" ".join(text.split())[-300:] or "it printed nothing"))
        return f"{passed[-1]} assertions"

    # ---- training

    def train(self, directory, *options, ranks=1, device=None, before=(), command=(), stop_at=None):
        """Trains on the digits, or runs another `command` with them. `options` are alternating keys and values, which take
        precedence. `before` starts the trainer."""
        pairs = {**self.recipe, "--device.kind": device or self.device, "--ema.decay": 0, "--log.every_steps": 1,
                 "--device.tune": "off",  # runs that time their plans may differ in bits
                 "--checkpoint.every_seconds": 0, "--checkpoint.directory": self.scratch / directory}
        pairs.update(zip(options[::2], options[1::2]))
        start = [*self.mpirun(), "-np", ranks] if ranks > 1 else []
        return self.run([*start, *before, *self.program("trainer"), *command, *(word for pair in pairs.items() for word in pair)],
                        stop_at=stop_at)

    def weights(self, directory):
        """Returns the weights at the end of a run as the bytes of a file that contains nothing else."""
        file = self.scratch / f"{directory}.safetensors"
        self.run([*self.program("trainer"), "export", self.scratch / directory / "latest", "--to", file])
        try:
            return file.read_bytes()
        except OSError as error:
            raise Failed(f"trainer export wrote no {file.name}") from error

    def same_bits(self, one, other):
        """Verifies that two runs had the same losses and ended with the same weights."""
        a, b = self.losses(one), self.losses(other)
        if a != b:
            step = next((i + 1 for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            raise Failed(f"{one} and {other} differ from step {step} on: {a[step - 1:step + 1]}, {b[step - 1:step + 1]}")
        if self.weights(one) != self.weights(other):
            raise Failed(f"{one} and {other} have the same losses, but not the same weights at the end")
        return f"{len(a)} losses and the weights at the end, bit for bit"

    def note_device(self, text):
        """Finds the device that a program logs when it opens it."""
        device = re.search(r"GPU \d+: (.*, compute capability .*)", text)
        if device:
            self.name_device(device.group(1))

    def name_device(self, name):
        """Records the device, and warns if it is a fake."""
        self.report.facts["device, as the program names it"] = name
        if "fake" in name.lower():
            self.report.warning = f"A fake device ({name}): nothing of this ran on a GPU"

    def rows(self, directory, kind="train"):
        """What the run wrote into metrics.jsonl, of one kind; every loss is finite."""
        path = self.scratch / directory / "metrics.jsonl"
        if not path.exists():
            raise Failed(f"the run {directory} wrote no metrics.jsonl")
        try:
            rows = [row for row in map(json.loads, path.read_text().splitlines()) if row["kind"] == kind]
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"metrics.jsonl of {directory} cannot be read: {error}") from error
        if not rows:
            raise Failed(f"metrics.jsonl of {directory} has no row of the kind {kind}")
        for row in rows:
            if not isinstance(row.get("loss"), (int, float)) or not math.isfinite(row["loss"]):
                raise Failed(f"loss {row.get('loss')} at step {row.get('step')} of the run {directory}")
        return rows

    def losses(self, directory):
        return [row["loss"] for row in self.rows(directory)]

    def python(self):
        return self.arguments.python or sys.executable
