#!/usr/bin/env python3
"""Stands in for every program that the GPU kit starts, by the name that it is started under.

STAND_IN_FAULTS, a JSON object, names the steps in which it fails, and how: crash, hang, nan, flood, wrong.
"""

import json
import os
import pathlib
import signal
import sys
import time

NAME = pathlib.Path(sys.argv[0]).name
WORDS = sys.argv[1:]
FAULT = json.loads(os.environ.get("STAND_IN_FAULTS", "{}")).get(os.environ.get("LOCKSTEP_KIT_STEP"))
NAN = float("nan")


def option(name, default=None):
    return WORDS[WORDS.index(name) + 1] if name in WORDS else default


def crash():
    print("terminate called after throwing an instance of 'std::runtime_error'", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    """With a process beside it that holds the output, and in a process group of its own as mpirun's ranks are."""
    print("about to hang", flush=True)
    if os.fork() == 0:
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def flood():
    while True:
        sys.stdout.write("again and again\n" * 65536)


def train():
    directory = pathlib.Path(option("--checkpoint.directory"))
    directory.mkdir(parents=True, exist_ok=True)
    device = option("--device.kind")
    if device == "gpu":
        print("rank 0: GPU 0: Stand-in (fake), 1.0 GB, compute capability 9.0")
    steps = int(option("--train.steps", 90))
    with open(directory / "metrics.jsonl", "a", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            loss = NAN if FAULT == "nan" and step > 2 else 2.0 + 1.0 / step
            file.write(json.dumps({"kind": "train", "step": step, "loss": loss}) + "\n")


def trainer():
    if WORDS == ["--version"]:
        print("nan" if FAULT == "nan" else "trainer (Lockstep) 0.1.0\ncommit: of a stand-in")
    else:
        train()


def tests():
    if FAULT == "nan":
        print("  CHECK( error < bound )\nwith expansion:\n  nan < 0.001")
        sys.exit(42)
    print("with expansion:\n  true == true\n\nAll tests passed (5 assertions in 1 test case)")


def gpu_lab():
    if WORDS == ["describe"]:
        print("nan" if FAULT == "nan" else '{"name": "Stand-in (fake)", "multiprocessors": 132, "cudnn": 91900}')


def nvidia_smi():
    print("nan" if FAULT == "nan" or "-q" in WORDS else ", ".join(["Stand-in", "580.0"] + ["1"] * 8))


def ldd():
    print("\tlibcudart.so.13 => /opt/libcudart.so.13 (0x00007f0000000000)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f0000000001)")


def sanitizer():
    print("========= ERROR SUMMARY: 0 errors")


def mpirun():
    rest = WORDS[WORDS.index("-np") + 2:]
    os.execv(rest[0], rest)


PROGRAMS = {"trainer": trainer, "mpirun": mpirun, "backend_test": tests, "golden_test": tests, "gpu_lab": gpu_lab,
            "nvidia-smi": nvidia_smi, "ldd": ldd, "compute-sanitizer": sanitizer}
FAULTS = {"crash": crash, "hang": hang, "flood": flood}

if FAULT in FAULTS:
    FAULTS[FAULT]()
PROGRAMS[NAME]()
