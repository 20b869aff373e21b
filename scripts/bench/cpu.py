#!/usr/bin/env python3
"""Compares training steps on the CPU with PyTorch's, and two ranks with two that exchange nothing.

    /usr/bin/python3 scripts/bench/cpu.py [--trainer PATH] [--newest PYTHON] [--avx2] [--only NAME ...] [--rounds N] [--report FILE]

All programs take turns on the same cores in every round, so that a busy moment of the machine affects all of them. Each is
started as a user would start it, twice: the first start, which ends after a step, warms memory and files for the second, so
that all sides have the same conditions. Lockstep's figures come from its metrics.jsonl. The report is appended to a page for
this kind of machine under docs/benchmarks/cpu. Needs python3-torch and python3-torchvision, and with --newest another Python
that has PyTorch of PyPI. Takes about a quarter of an hour on two cores, three times that with --newest.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from cpu_report import (NEWEST, NEWEST_BF16, OURS, OURS_BF16, PYTORCH, ROOT, append_report, comparison_lines,
                        instruction_sets, machine_lines, scaling_lines)

POLL_SECONDS = 0.02

# Ways to run the newest PyTorch in each precision; the first round tries all of them, the others the fastest.
VARIANTS = {"float32": [(), ("--compile",)], "bf16": [("--autocast",), ("--compile", "--autocast")]}
AVX2_ONLY = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}

RMSPROP = 'name = "rmsprop_tf"\nlr = 0.01\nmomentum = 0.9\ndecay = 0.9\nepsilon = 1.0\nweight_decay = 4e-5'
SGD = 'name = "sgd"\nlr = 0.01\nmomentum = 0.9\nweight_decay = 1e-4'

RECIPE = """
[model]
name = "{model}"
classes = {classes}
image_size = {size}
aux_weight = {aux}
dropout = 0.0

[data]
format = "synthetic"

[train]
steps = {steps}
batch_size = {batch}
precision = "{precision}"

[optimizer]
{optimizer}

[schedule]
name = "constant"

[ema]
decay = 0.0

[checkpoint]
directory = "{directory}"
every_seconds = 0
resume = "never"

[device]
kind = "cpu"
threads = {threads}

[log]
every_steps = 1
progress = "lines"
tensorboard = false
"""


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    size: int
    classes: int
    optimizer: str
    aux: float = 0.0


INCEPTION = Model("inception_v3", 299, 1000, RMSPROP, 0.4)
RESNET = Model("resnet50", 224, 1000, SGD)
CIFAR = Model("cifar10_cnn", 32, 10, SGD)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both sides train `model` with `batch` images a step for `steps` steps, the first `warm_up` of which do not count."""

    name: str
    model: Model
    batch: int
    steps: int
    warm_up: int
    rounds: int


COMPARISONS = [
    Comparison("inception_v3 batch 8", INCEPTION, 8, 7, 2, 3),
    Comparison("inception_v3 batch 32", INCEPTION, 32, 3, 1, 2),
    Comparison("resnet50 batch 16", RESNET, 16, 5, 1, 2),
    Comparison("cifar10_cnn batch 128", CIFAR, 128, 30, 5, 2),
]
SCALINGS = [
    Comparison("two ranks, batch 4 each", INCEPTION, 4, 7, 2, 2),
    Comparison("two ranks, batch 32 each", INCEPTION, 32, 4, 1, 2),
]


@dataclasses.dataclass
class Run:
    step_seconds: list  # warm-up left out
    first_step_seconds: float  # from the start of the command to the end of the first step
    peak_kb: int  # of one process, during the steps


def environment(**extra):
    """mpirun starts for root. Each side keeps its default for waiting threads, because PyTorch's suits it best."""
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **extra}


def peak_of(pid):
    try:
        found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) if found else 0
    except OSError:
        return 0


def descendants(pid):
    pids = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                pids += [int(child), *descendants(int(child))]
        except OSError:
            pass
    return pids


def is_trainer(pid, trainer):
    try:
        return os.path.samefile(f"/proc/{pid}/exe", trainer)
    except OSError:
        return False


class Lockstep:
    """A run of the trainer. It makes one step more than is measured, and its peak memory is read in that step, before the
    last checkpoint needs memory."""

    def __init__(self, comparison, trainer, directory, ranks=1, threads=1, core=None,
                 precision="float32"):
        self.comparison, self.trainer, self.directory = comparison, trainer, directory
        model = comparison.model
        directory.mkdir(parents=True)
        config = directory / "config.toml"
        config.write_text(RECIPE.format(model=model.name, size=model.size, classes=model.classes, aux=model.aux,
                                        optimizer=model.optimizer, steps=comparison.steps + 1, batch=comparison.batch,
                                        directory=directory / "run", threads=threads,
                                        precision=precision))
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), trainer, "--config", config]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        self.start = time.monotonic()
        self.log = open(directory / "log.txt", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=environment())

    def steps_done(self):
        try:
            lines = (self.directory / "run" / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return []
        records = []
        for line in lines:
            try:
                records.append(json.loads(line))
            except ValueError:
                break  # being written
        return [record for record in records if record["kind"] == "train"]

    def wait(self):
        """Waits for the program and returns the Run. Called once; threads may wait for several at once."""
        first, peak = None, 0
        while self.process.poll() is None and peak == 0:
            done = len(self.steps_done())
            if first is None and done > 0:
                first = time.monotonic() - self.start
            if done >= self.comparison.steps:
                peak = max(peak_of(p) for p in [0, *descendants(self.process.pid)] if p and is_trainer(p, self.trainer))
            time.sleep(POLL_SECONDS)
        code = self.process.wait()
        self.log.close()
        if code != 0 or first is None:
            sys.exit(f"the trainer failed with code {code}:\n{(self.directory / 'log.txt').read_text()}")
        seconds = [record["seconds_per_step"] for record in self.steps_done()]
        return Run(seconds[self.comparison.warm_up:self.comparison.steps], first, peak)


def run_pytorch(comparison, threads, python=sys.executable, flags=()):
    command = [python, ROOT / "scripts/bench/pytorch_training.py", "--model", comparison.model.name,
               "--batch", str(comparison.batch), "--threads", str(threads), "--steps", str(comparison.steps), *flags]
    start = time.monotonic()
    # OMP_NUM_THREADS for the threads that autograd starts, too
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(OMP_NUM_THREADS=str(threads)))
    first, lines = None, []
    for line in process.stdout:
        if first is None and line.startswith("step 1,"):
            first = time.monotonic() - start
        lines.append(line)
    if process.wait() != 0 or first is None:
        raise RuntimeError(f"PyTorch failed with code {process.returncode}:\n{''.join(lines)}")
    seconds = [float(line.split()[-1]) for line in lines if line.startswith("step ")]
    peak = next(int(line.split()[1]) for line in lines if line.startswith("peak_kb"))
    return Run(seconds[comparison.warm_up:], first, peak)


class Newest:
    """PyTorch of another Python, in the variant that was the fastest in the first round of a comparison."""

    def __init__(self, python):
        self.python = python
        self.best = {}  # (comparison, precision): variant

    def run(self, comparison, precision, threads):
        known = self.best.get((comparison, precision))
        runs = {}
        for flags in [known] if known is not None else VARIANTS[precision]:
            try:
                runs[flags] = second_of_two(lambda part: run_pytorch(part, threads, self.python, flags), comparison)
            except RuntimeError as error:
                print(f"  newest PyTorch {' '.join(flags) or 'eager'}: {str(error).splitlines()[0]}", flush=True)
        best = min(runs, key=lambda flags: statistics.median(runs[flags].step_seconds))
        for flags, run in runs.items():
            print(f"  newest PyTorch {' '.join(flags) or 'eager'}: {statistics.median(run.step_seconds):.3f}", flush=True)
        self.best[comparison, precision] = best
        return runs[best]

    def variants_of(self, comparison):
        return [(precision, " ".join(flags) or "eager")
                for (part, precision), flags in self.best.items() if part == comparison]


def second_of_two(run, comparison):
    """run(comparison) after a run that ends with its first step."""
    run(dataclasses.replace(comparison, steps=1, warm_up=0))
    return run(comparison)


def run_alone_together(comparison, trainer, directory, cores):
    """Two independent runs of one rank, one on each core, at the same time."""
    alone = [Lockstep(comparison, trainer, directory / str(core), core=core) for core in cores[:2]]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = list(pool.map(Lockstep.wait, alone))
    seconds = [(a + b) / 2 for a, b in zip(*(run.step_seconds for run in runs))]
    return Run(seconds, max(run.first_step_seconds for run in runs), max(run.peak_kb for run in runs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", default=ROOT / "build/release/trainer", type=pathlib.Path)
    parser.add_argument("--newest", metavar="PYTHON", help="a Python with another PyTorch, for a further comparison")
    parser.add_argument("--avx2", action="store_true", help="limit all sides to AVX2")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run only parts whose names contain one of these")
    parser.add_argument("--rounds", type=int, help="number of rounds of every part, instead of its own")
    parser.add_argument("--report", type=pathlib.Path, help="the page to append to")
    arguments = parser.parse_args()
    trainer = arguments.trainer.resolve(strict=True)
    newest = Newest(arguments.newest) if arguments.newest else None
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    if arguments.avx2:
        os.environ.update(AVX2_ONLY)
    bf16 = not arguments.avx2 and bool({"avx512_bf16", "amx_bf16"} & instruction_sets())

    def wanted(part):
        return not arguments.only or any(text in part.name for text in arguments.only)

    loads = []
    lines = []

    def note(part, runs, side, run):
        runs[side].append(run)
        print(f"{part.name}, {side}: {statistics.median(run.step_seconds):.3f} s a step, first step after "
              f"{run.first_step_seconds:.1f} s, {run.peak_kb / 1e6:.2f} GB", flush=True)

    with tempfile.TemporaryDirectory() as name:
        directories = (pathlib.Path(name) / str(number) for number in range(1_000_000))

        def lockstep(part, **options):
            return Lockstep(part, trainer, next(directories), **options).wait()

        for part in filter(wanted, COMPARISONS):
            runs = collections.defaultdict(list)
            for _ in range(arguments.rounds or part.rounds):
                loads.append(os.getloadavg()[0])
                sides = {OURS: lambda p: lockstep(p, threads=len(cores)), PYTORCH: lambda p: run_pytorch(p, len(cores))}
                if bf16:
                    sides[OURS_BF16] = lambda p: lockstep(p, threads=len(cores), precision="bf16")
                for side, run in sides.items():
                    note(part, runs, side, second_of_two(run, part))
                if newest:
                    note(part, runs, NEWEST, newest.run(part, "float32", len(cores)))
                if newest and bf16:
                    note(part, runs, NEWEST_BF16, newest.run(part, "bf16", len(cores)))
            lines += comparison_lines(part, runs, newest)
        for part in filter(wanted, SCALINGS if len(cores) == 2 else []):
            runs = collections.defaultdict(list)
            for _ in range(arguments.rounds or part.rounds):
                loads.append(os.getloadavg()[0])
                note(part, runs, "together", lockstep(part, ranks=2))
                note(part, runs, "alone", run_alone_together(part, trainer, next(directories), cores))
            lines += scaling_lines(part, runs["together"], runs["alone"])

    lines = [*machine_lines(cores, trainer, newest),
             f"- load average before each round: {', '.join(f'{load:.2f}' for load in loads)}", "", *lines]
    page = append_report(arguments.report, arguments.avx2, lines)
    print(f"appended to {page}")


if __name__ == "__main__":
    main()
