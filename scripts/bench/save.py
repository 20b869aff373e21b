#!/usr/bin/python3
"""Measures the cost of saving a checkpoint, and compares it with torch.save and dd.

    scripts/bench/save.py [--trainer PATH] [--tool PATH] [--rounds N] [--directory DIRECTORY] [--report FILE]

Each round runs in turn: a training run that saves at every second step; torch.save of the same arrays; the parts of a
save, one by one; dd of a checkpoint's bytes. All write to DIRECTORY's disk. Needs python3-torch and python3-h5py. Takes
about half a minute per round on two cores.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import torch

from cpu import INCEPTION, RECIPE, ROOT, SGD, environment, machine_lines, pytorch_version

BATCH, STEPS = 8, 5
EVERY_SECONDS = 600


def train(trainer, directory):
    """The rows of metrics.jsonl of a run that saves at every second step and at the last one."""
    config = directory / "config.toml"
    config.write_text(RECIPE.format(model=INCEPTION.name, size=INCEPTION.size, classes=INCEPTION.classes, aux=INCEPTION.aux,
                                    optimizer=SGD, steps=STEPS, batch=BATCH, directory=directory / "run",
                                    threads=len(os.sched_getaffinity(0))))
    command = ["mpirun", "--bind-to", "none", "-np", "1", trainer, "--config", config, "--checkpoint.every_steps", "2"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
    rows = [json.loads(line) for line in (directory / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row["seconds_per_step"] for row in rows if row["kind"] == "train"]
    # The last save does not count, because nothing is computed during it.
    saves = [row for row in rows if row["kind"] == "checkpoint" and row["step"] < STEPS]
    return steps, saves


def read_state(path):
    state = {}
    with h5py.File(path) as file:
        for group in ("model", "optimizer"):
            file[group].visititems(lambda name, item, group=group: state.update(
                {f"{group}/{name}": torch.from_numpy(item[()])} if isinstance(item, h5py.Dataset) else {}))
    return state


def torch_save_seconds(state, path):
    start = time.monotonic()
    torch.save(state, path)
    seconds = time.monotonic() - start
    path.unlink()
    return seconds


def parts(tool, checkpoint, directory):
    """Returns {part: (seconds, processor seconds)} of a process's second save; the first one also allocates memory."""
    lines = subprocess.run([tool, checkpoint, directory, "2"], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: (float(clock), float(cpu)) for name, clock, cpu in map(str.split, lines)}


def dd_seconds(source, path):
    start = time.monotonic()
    subprocess.run(["dd", f"if={source}", f"of={path}", "bs=8M", "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    path.unlink()
    return seconds


def spread(values, form="{:.3f}"):
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"


def measure(arguments, directory):
    rounds = []
    state = None
    memory = pathlib.Path("/dev/shm") if pathlib.Path("/dev/shm").is_dir() else directory
    for number in range(arguments.rounds):
        here = directory / str(number)
        here.mkdir()
        steps, saves = train(arguments.trainer, here)
        checkpoint = (here / "run" / "latest").resolve()
        state = state or read_state(checkpoint)
        saved_by_torch = torch_save_seconds(state, here / "torch.pt")
        of_save = parts(arguments.tool, checkpoint, here)
        with tempfile.NamedTemporaryFile(dir=memory) as source:
            shutil.copyfile(checkpoint, source.name)
            by_dd = dd_seconds(source.name, here / "dd")
        rounds.append({"steps": steps, "saves": saves, "torch": saved_by_torch, "parts": of_save, "dd": by_dd})
        print(f"wait {max(s['snapshot_seconds'] for s in saves):.6f} s, torch.save {saved_by_torch:.3f} s, "
              f"write {of_save['write'][0]:.3f} s, dd {by_dd:.3f} s; "
              + ", ".join(f"{name} {cpu:.3f}" for name, (_, cpu) in of_save.items()), flush=True)
        shutil.rmtree(here)
    tensors = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    return rounds, tensors


def report_lines(rounds, tensor_bytes, cores):
    waits = [save["snapshot_seconds"] for r in rounds for save in r["saves"]]
    torch_seconds = [r["torch"] for r in rounds]
    cpu = [save["cpu_seconds"] for r in rounds for save in r["saves"]]
    lost = [(save["snapshot_seconds"] + save["cpu_seconds"] / cores) / EVERY_SECONDS for r in rounds for save in r["saves"]]
    file_bytes = rounds[0]["saves"][0]["bytes"]

    def part(name, which):
        return [r["parts"][name][which] for r in rounds]

    def minus(a, b):
        return [x - y for x, y in zip(a, b)]

    build, crc, write, verify = (part(name, 1) for name in ("build", "crc64", "write", "verify"))
    whole = part("save", 1)
    copy = statistics.median(whole) - sum(map(statistics.median, (build, write, verify)))
    disk = [r["dd"] / r["parts"]["write"][0] for r in rounds]
    return ["## Waiting time", "",
            f"Inception-v3 with momentum: {tensor_bytes / 1e6:.1f} MB of arrays, a file of {file_bytes / 1e6:.1f} MB. "
            f"Training at batch {BATCH} on {cores} threads; {len(waits)} saves during steps. In parentheses: minimum and "
            "maximum.", "",
            "| | seconds |", "|---|---|",
            f"| the training thread's wait for a save | {spread(waits, '{:.6f}')} |",
            f"| `torch.save` of the same arrays | {spread(torch_seconds)} |", "",
            f"The longest wait is 1/{min(torch_seconds) / max(waits):.0f} of the shortest `torch.save`. "
            "PyTorch does not sync the file; Lockstep syncs it, reads it back and compares it while training continues.", "",
            "## Processor time", "",
            f"The writer thread uses {spread(cpu)} seconds of one core per save while training continues. With a save "
            f"every {EVERY_SECONDS} s, this and the wait cost {100 * statistics.median(lost):.3f} % of the throughput of "
            f"{cores} cores (at most {100 * max(lost):.3f} %).", "",
            "The parts of the second save of a process that does nothing else (the first save also allocates memory):", "",
            "| part | processor seconds |", "|---|---|",
            f"| copying the arrays and checking for non-finite values (the rest) | {copy:.3f} |",
            f"| building the file in memory, with checksums of chunks | {spread(minus(build, crc))} |",
            f"| the checksum over the file | {spread(crc)} |",
            f"| write, sync, rename | {spread(write)} |",
            f"| reading back and comparing | {spread(verify)} |",
            f"| a whole save | {spread(whole)} |", "",
            "## The disk", "",
            "| | seconds | MB/s |", "|---|---|---|",
            *(f"| {name} | {spread(seconds)} | {file_bytes / 1e6 / statistics.median(seconds):.0f} |"
              for name, seconds in (("write, sync, rename", part("write", 0)),
                                    ("`dd bs=8M conv=fsync`", [r["dd"] for r in rounds]))), "",
            f"Writing reaches {spread([100 * ratio for ratio in disk], '{:.0f}')} % of the speed of dd in the same round.",
            ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", default=ROOT / "build/release/trainer", type=pathlib.Path)
    parser.add_argument("--tool", type=pathlib.Path, help="lockstep_save_benchmark; default: the one built with the trainer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=pathlib.Path, help="directory to write to; default: beside the trainer")
    parser.add_argument("--report", default=ROOT / "docs/benchmarks/save.md", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.trainer = arguments.trainer.resolve(strict=True)
    arguments.tool = (arguments.tool or arguments.trainer.parent / "src/checkpoint/lockstep_save_benchmark").resolve(strict=True)
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    with tempfile.TemporaryDirectory(dir=arguments.directory or arguments.trainer.parent) as name:
        load = os.getloadavg()[0]
        disk = subprocess.run(["df", "--output=fstype", name], capture_output=True, text=True).stdout.split()[-1]
        rounds, tensor_bytes = measure(arguments, pathlib.Path(name))
    head = ["# The cost of saving a checkpoint", "",
            "Written by `scripts/bench/save.py`; run it again to replace this page. The programs take turns in every "
            "round.", "",
            *machine_lines(cores, arguments.trainer, None)[:3],
            f"- {pytorch_version(sys.executable)}",
            f"- file system: {disk}; load average at the start: {load:.2f}; {arguments.rounds} rounds", ""]
    arguments.report.write_text("\n".join(head + report_lines(rounds, tensor_bytes, len(cores))).rstrip() + "\n")
    print(f"written: {arguments.report}")


if __name__ == "__main__":
    sys.exit(main())
