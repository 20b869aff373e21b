#!/usr/bin/env python3
"""Measures how long a job takes to start and to end, by the number of ranks, and prints a Markdown table.

    scripts/bench/start_time.py [--ranks 2,4,...] [--rounds 3] [--trainer PATH]

A wide_mlp of 2,306 parameters makes five steps and saves. All ranks run on this machine, so with more ranks than cores the
figures are mostly the processor time of all ranks together. The seconds count from the start of mpirun; every figure is the
median of the rounds.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SETTINGS = {"model.name": "wide_mlp", "model.classes": 2, "model.vocabulary": 124, "model.max_ids": 16,
            "model.hidden": "[16, 16]", "data.format": "synthetic", "train.batch_size": 2, "train.epochs": 1,
            "train.steps": 5, "log.every_steps": 1}
# A line that rank 0 prints when something is done: the start of MPI, the rest of the start, a step, the job.
LONGEST_SECONDS = 600  # of one job, which is then ended
MARKS = {"MPI": "Lockstep ", "ready": " parameters, ", "first step": ": step 1,", "saved": "finished at step"}


def run(trainer, ranks):
    """The seconds of one job by mark, and until mpirun has ended."""
    with tempfile.TemporaryDirectory() as directory:
        settings = [word for key, value in SETTINGS.items() for word in (f"--{key}", str(value))]
        command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", trainer, *settings,
                   "--checkpoint.directory", directory + "/run"]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        begin, seconds, output = time.monotonic(), {}, []
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as job:
            watch = threading.Timer(LONGEST_SECONDS, os.killpg, (job.pid, signal.SIGKILL))
            watch.start()
            try:
                for line in job.stdout:
                    output.append(line)
                    for mark, text in MARKS.items():
                        if mark not in seconds and text in line:
                            seconds[mark] = time.monotonic() - begin
                code = job.wait()
            except BaseException:
                os.killpg(job.pid, signal.SIGKILL)
                raise
            finally:
                watch.cancel()
        seconds["ended"] = time.monotonic() - begin
    if code or len(seconds) != len(MARKS) + 1:
        sys.exit(f"exit code {code}\n{''.join(output)}")
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default=str(ROOT / "build/trainer"))
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("| ranks | " + " | ".join([*MARKS, "ended"]) + " |\n" + "|---" * (len(MARKS) + 2) + "|")
    for ranks in arguments.ranks:
        rounds = [run(arguments.trainer, ranks) for _ in range(arguments.rounds)]
        median = {mark: statistics.median(r[mark] for r in rounds) for mark in rounds[0]}
        print(f"| {ranks} | " + " | ".join(f"{s:.2f} s" for s in median.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
