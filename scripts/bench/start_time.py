#!/usr/bin/env python3
"""Measures how long a job takes to start and to end, by the number of ranks, and prints a Markdown table.

    scripts/bench/start_time.py [--ranks 2,4,...] [--rounds 3] [--trainer PATH[,PATH]]

A wide_mlp of 2,306 parameters makes five steps and saves. All ranks run on this machine, so with more ranks than cores the
figures are mostly the processor time of all ranks together, which the last column has: user and system of mpirun and all
that it started. The row "MPI alone" is a program that does nothing but MPI_Init_thread and MPI_Finalize, made with mpicc.
The seconds count from the start of mpirun; every figure is the median of the rounds, in which all programs take turns.
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
LONGEST_SECONDS = 600  # limit of one job
MARKS = {"MPI": "Lockstep ", "ready": " parameters, ", "first step": ": step 1,", "saved": "finished at step"}
MPI_ALONE = """
#include <mpi.h>
int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  return MPI_Finalize();
}
"""


def run(program, ranks):
    """The seconds of one job until each mark and until the end of mpirun, and its processor time."""
    with tempfile.TemporaryDirectory() as directory:
        settings = [word for key, value in SETTINGS.items() for word in (f"--{key}", str(value))]
        command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", program, *settings,
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
                _, status, usage = os.wait4(job.pid, 0)
                job.returncode = os.waitstatus_to_exitcode(status)
            except BaseException:
                os.killpg(job.pid, signal.SIGKILL)
                raise
            finally:
                watch.cancel()
        seconds |= {"ended": time.monotonic() - begin, "processors": usage.ru_utime + usage.ru_stime}
    if job.returncode or (output and len(seconds) != len(MARKS) + 2):
        sys.exit(f"exit code {job.returncode}\n{''.join(output)}")
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=lambda text: text.split(","), default=[str(ROOT / "build/release/trainer")])
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    columns = [*MARKS, "ended", "processors"]
    print("| ranks | program | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 2) + "|")
    with tempfile.TemporaryDirectory() as directory:
        alone = directory + "/mpi_alone"
        subprocess.run(["mpicc", "-x", "c", "-", "-o", alone], input=MPI_ALONE, text=True, check=True)
        for ranks in arguments.ranks:
            runs = {program: [] for program in [alone, *arguments.trainer]}
            for _ in range(arguments.rounds):
                for program, rounds in runs.items():
                    rounds.append(run(program, ranks))
            for program, rounds in runs.items():
                cells = [f"{statistics.median(r[c] for r in rounds):.2f} s" if c in rounds[0] else "" for c in columns]
                print(f"| {ranks} | {'MPI alone' if program == alone else program} | " + " | ".join(cells) + " |",
                      flush=True)


if __name__ == "__main__":
    main()
