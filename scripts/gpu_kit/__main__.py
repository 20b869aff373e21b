"""Tests a GPU in a few minutes; scripts/gpu_acceptance.sh explains how. Uses only the standard library."""

import argparse
import os
import pathlib
import re
import shutil
import sys

import accept
import engines
import pairs
import smoke
from kit import Kit

MODES = {"smoke": smoke.steps, "accept": accept.steps, "engines": engines.steps, "pytorch": pairs.steps}


def limit(text):
    pattern, _, seconds = text.rpartition("=")
    return re.compile(pattern), float(seconds)


def limited(step, arguments):
    pattern, seconds = arguments.limit
    own = seconds if pattern and pattern.search(step.name) else step.seconds * arguments.limit_factor
    return step._replace(seconds=own)


def parse(words):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(prog="gpu_acceptance", description="Runs the steps of the given modes and writes "
                                     "report.md, report.json and log.txt, which are complete after each step.")
    parser.add_argument("--mode", default="smoke", help=f"modes in this order, separated by commas: {', '.join(MODES)} (default: smoke)")
    parser.add_argument("--step", default="", metavar="PATTERN", help="run only steps whose names match this regular expression")
    parser.add_argument("--list", action="store_true", help="print the steps and their limits, and run none")
    parser.add_argument("--seconds", type=float, default=225, help="limit of the whole run; later steps are skipped (default: 225)")
    parser.add_argument("--limit-factor", type=float, default=1, help="factor of the limit of each step, for a slow fake device")
    parser.add_argument("--limit", type=limit, default=(None, 0), metavar="PATTERN=SECONDS", help="the limit of steps whose names "
                        "match the pattern")
    parser.add_argument("--go-on", action="store_true", help="continue with other modes after "
                        "a step has failed that bars them: the plugin does not open, or the device cannot be described")
    parser.add_argument("--small", action="store_true", help="run few steps of few images, for a fake device or the CPU")
    parser.add_argument("--out", default=os.environ.get("OUT") or "gpu_report", help="directory of the report (default: $OUT, "
                        "else gpu_report)")
    parser.add_argument("--bundle", help="directory that scripts/bundle.sh made")
    parser.add_argument("--build", default=str(here.parents[1] / "build/release"), help="build directory, without a bundle (default: build/release)")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu", help="cpu: tries the steps themselves, without a GPU")
    parser.add_argument("--python", help="the Python that has PyTorch (default: this one)")
    arguments = parser.parse_args(words)
    arguments.modes = arguments.mode.split(",")
    unknown = [mode for mode in arguments.modes if mode not in MODES]
    if unknown:
        parser.error(f"there is no mode {', '.join(unknown)}; modes are {', '.join(MODES)}")
    return arguments


def main():
    arguments = parse(sys.argv[1:])
    kit = Kit(arguments, arguments.modes)
    if arguments.device == "cpu":
        kit.report.warning = "Computed on the CPU: this says nothing of a GPU"
    steps = [limited(step, arguments) for mode in arguments.modes for step in MODES[mode](kit) if re.search(arguments.step, step.name)]
    try:
        if arguments.list:
            print("\n".join(f"{step.mode}\t{step.seconds}\t{step.name}" for step in steps))
            return 0
        kit.run_steps(steps)
    finally:
        shutil.rmtree(kit.scratch, ignore_errors=True)
    print((kit.report.out / "report.md").read_text(), flush=True)
    return 0 if kit.report.sound() else 1


if __name__ == "__main__":
    sys.exit(main())
