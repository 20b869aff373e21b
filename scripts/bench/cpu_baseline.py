#!/usr/bin/env python3
"""Measures training steps of Inception-v3 (299 pixels, global batch 8, auxiliary head, RMSProp) on the CPU, beside PyTorch's.

    /usr/bin/python3 scripts/bench/cpu_baseline.py [--trainer PATH] [--rounds N] [--steps N] [--report FILE]

Three contestants share the same cores and take turns in every round, so that a busy moment of the machine hits all of
them: Lockstep with one rank and with two, PyTorch with one process, its best setting here. Needs python3-torch and
python3-torchvision. Each is started as a user would start it; what is read of Lockstep is its command line's own
metrics.jsonl.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GLOBAL_BATCH = 8
WARM_UP = 2  # steps left out of the step time: kernels are made, pages touched for the first time

RECIPE = """
[model]
name = "inception_v3"
classes = 1000
image_size = 299
aux_weight = 0.4

[data]
format = "synthetic"

[train]
steps = {steps}
batch_size = {batch}
label_smoothing = 0.1

[optimizer]
name = "rmsprop_tf"
lr = 0.01
momentum = 0.9
decay = 0.9
epsilon = 1.0
weight_decay = 4e-5

[schedule]
name = "constant"

[ema]
decay = 0.0

[checkpoint]
directory = "{folder}"
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


@dataclasses.dataclass
class Contestant:
    name: str
    ranks: int
    threads: int  # of each rank
    start: object  # (contestant, steps, folder, trainer) -> Run


@dataclasses.dataclass
class Run:
    step_seconds: list  # warm-up left out
    first_step_seconds: float  # from the start of the command to the end of the first step
    peak_kb: list  # of each rank


def environment(**extra):
    """The environment of a contestant: waiting threads sleep, mpirun starts for root and places ranks freely."""
    common = {"OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **common, **extra}


def watch(command, **options):
    """Starts the command; returns it with the seconds until it printed its first step, and all its lines."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    first, lines = None, []
    for line in process.stdout:
        if first is None and re.search(r"\bstep 1,", line):
            first = time.monotonic() - start
        lines.append(line)
    if process.wait() != 0 or first is None:
        sys.exit(f"failed with code {process.returncode}: {' '.join(map(str, command))}\n{''.join(lines)}")
    return first, lines


def run_lockstep(contestant, steps, folder, trainer):
    config = folder / "config.toml"
    config.write_text(RECIPE.format(steps=steps, batch=GLOBAL_BATCH // contestant.ranks,
                                    threads=contestant.threads, folder=folder / "run"))
    probe = [sys.executable, __file__, "--probe", folder]
    first, _ = watch(["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(contestant.ranks), *probe,
                      trainer, "--config", config], env=environment())
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    seconds = [record["seconds_per_step"] for record in records if record["kind"] == "train"]
    peaks = [int(path.read_text()) for path in sorted(folder.glob("peak_kb.*"))]
    return Run(seconds[WARM_UP:], first, peaks)


def run_pytorch(contestant, steps, folder, trainer):
    command = [sys.executable, HERE / "pytorch_inception.py", "--batch", str(GLOBAL_BATCH),
               "--threads", str(contestant.threads), "--steps", str(steps)]
    # OMP_NUM_THREADS for the threads that autograd starts, too
    first, lines = watch(command, env=environment(OMP_NUM_THREADS=str(contestant.threads)))
    seconds = [float(line.split()[-1]) for line in lines if line.startswith("step ")]
    peaks = [int(line.split()[1]) for line in lines if line.startswith("peak_kb")]
    return Run(seconds[WARM_UP:], first, peaks)


def probe(folder, command):
    """Stands in for one rank: runs the command and leaves its peak resident memory in the folder."""
    code = subprocess.run(command).returncode
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    (pathlib.Path(folder) / f"peak_kb.{os.getpid()}").write_text(str(peak))
    sys.exit(code if code >= 0 else 128 - code)


def output_of(command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def machine_lines(cores, trainer):
    """What the numbers were measured on, as Markdown list items."""
    cpu = next(line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
               if line.startswith("model name"))
    system = next(line.split("=")[1].strip('"') for line in pathlib.Path("/etc/os-release").read_text().splitlines()
                  if line.startswith("PRETTY_NAME"))
    torch = output_of([sys.executable, "-c", "import torch, torchvision\n"
                       "print('PyTorch', torch.__version__, 'with torchvision', torchvision.__version__)"])
    mpi = output_of(["mpirun", "--version"]).splitlines()[0]
    revision = output_of(["git", "-C", ROOT, "describe", "--always", "--dirty"])
    return [f"- date: {datetime.date.today().isoformat()}",
            f"- machine: {cpu}, {len(cores)} cores used of {os.cpu_count()}, Linux {platform.release()}, {system}",
            f"- {output_of([trainer, '--version']).splitlines()[0]} (commit {revision}), {mpi}",
            f"- {torch}, channels-last memory format"]


def report_of(contestants, runs, cores, trainer, loads):
    """The report as Markdown."""
    def median(name):
        return statistics.median(second for run in runs[name] for second in run.step_seconds)

    steps = sum(len(run.step_seconds) for run in runs[contestants[0].name])
    lines = ["# Inception-v3 on the CPU, beside PyTorch", "",
             "Written by `scripts/bench/cpu_baseline.py`; run it again to replace this page. Training steps at 299 "
             f"pixels, auxiliary head, RMSProp, float32, random images, global batch {GLOBAL_BATCH}; all four on the "
             "same cores, taking turns.", "", *machine_lines(cores, trainer),
             f"- load average before each round: {', '.join(f'{load:.2f}' for load in loads)}", "",
             "| | seconds a step | spread | images/s | to the end of step 1 | peak memory of each rank |",
             "|---|---|---|---|---|---|"]
    for contestant in contestants:
        own = runs[contestant.name]
        medians = [statistics.median(run.step_seconds) for run in own]
        peaks = [max(values) / 1e6 for values in zip(*(run.peak_kb for run in own))]
        lines.append(f"| {contestant.name} | {median(contestant.name):.3f} | {min(medians):.3f}-{max(medians):.3f} "
                     f"| {GLOBAL_BATCH / median(contestant.name):.2f} "
                     f"| {statistics.median(run.first_step_seconds for run in own):.1f} s "
                     f"| {', '.join(f'{peak:.2f} GB' for peak in peaks)} |")
    lines += ["", f"Seconds a step: median of {steps} steps in {len(loads)} rounds, the first {WARM_UP} of each run "
              "left out; spread: lowest and highest median of a run. Time to the end of step 1 counts from the start "
              "of the command.", ""]
    theirs = next(c for c in contestants if c.start is run_pytorch)
    for ours in (c for c in contestants if c is not theirs):
        ratios = [statistics.median(b.step_seconds) / statistics.median(a.step_seconds)
                  for a, b in zip(runs[ours.name], runs[theirs.name])]
        lines.append(f"{ours.name} runs at {statistics.median(ratios):.2f} times the speed of {theirs.name} (rounds: "
                     f"{min(ratios):.2f} to {max(ratios):.2f}).")
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["--probe"]:
        probe(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", default=ROOT / "build/release/trainer", type=pathlib.Path)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=8, type=int, help=f"steps of each run, the first {WARM_UP} not counted")
    parser.add_argument("--cores", default=2, type=int, help="how many of this process's cores to use")
    parser.add_argument("--report", default=ROOT / "docs/benchmarks/cpu_baseline.md", type=pathlib.Path)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:arguments.cores]
    os.sched_setaffinity(0, cores)

    contestants = [Contestant("Lockstep, 1 rank", 1, len(cores), run_lockstep),
                   Contestant("PyTorch, 1 process", 1, len(cores), run_pytorch),
                   Contestant("Lockstep, 2 ranks", 2, max(1, len(cores) // 2), run_lockstep)]
    runs = {contestant.name: [] for contestant in contestants}
    loads = []
    for round_number in range(1, arguments.rounds + 1):
        loads.append(os.getloadavg()[0])
        for contestant in contestants:
            with tempfile.TemporaryDirectory() as folder:
                run = contestant.start(contestant, arguments.steps, pathlib.Path(folder), arguments.trainer.resolve())
            runs[contestant.name].append(run)
            print(f"round {round_number}, {contestant.name}: {statistics.median(run.step_seconds):.3f} s a step, "
                  f"first step after {run.first_step_seconds:.1f} s", flush=True)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(report_of(contestants, runs, cores, arguments.trainer.resolve(), loads))
    print(f"written: {arguments.report}")


if __name__ == "__main__":
    main()
