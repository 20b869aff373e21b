"""The report of cpu.py as Markdown: the machine, and tables of steps."""

import datetime
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

OURS, OURS_BF16 = "Lockstep", "Lockstep, bf16"
PYTORCH, NEWEST, NEWEST_BF16 = "PyTorch", "newest PyTorch", "newest PyTorch, bf16 autocast"


def output_of(command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def pytorch_version(python):
    return output_of([python, "-c", "import torch, torchvision\n"
                      "print('PyTorch', torch.__version__, 'with torchvision', torchvision.__version__)"])


def machine_lines(cores, trainer, newest):
    """The machine and the programs, as Markdown list items."""
    cpu = next(line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
               if line.startswith("model name"))
    system = next(line.split("=")[1].strip('"') for line in pathlib.Path("/etc/os-release").read_text().splitlines()
                  if line.startswith("PRETTY_NAME"))
    mpi = output_of(["mpirun", "--version"]).splitlines()[0]
    revision = output_of(["git", "-C", ROOT, "describe", "--always", "--dirty"])
    onednn = output_of(["dpkg-query", "-W", "-f", "${Version}", "libdnnl[0-9]*"])
    return [f"- date: {datetime.date.today().isoformat()}",
            f"- machine: {cpu} ({', '.join(sorted(instruction_sets()))}), {len(cores)} cores used of {os.cpu_count()}, "
            f"Linux {platform.release()}, {system}",
            f"- {output_of([trainer, '--version']).splitlines()[0]} (commit {revision}), {mpi}",
            f"- {pytorch_version(sys.executable)}, channels-last memory format; oneDNN {onednn or 'of an unknown version'} on "
            "both sides",
            *([f"- newest: {pytorch_version(newest.python)}, channels-last, with its own oneDNN; the faster of eager and "
               "torch.compile"] if newest else [])]


def instruction_sets():
    return {"avx2", "avx512f", "avx512_bf16", "amx_bf16"} & set(pathlib.Path("/proc/cpuinfo").read_text().split())


def kind_of_machine(avx2):
    """The name of the machine's page: maker, family and the highest instruction set, such as amd-family-25-avx2."""
    facts = dict(re.findall(r"(?m)^(vendor_id|cpu family)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text()))
    maker = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(facts.get("vendor_id"), platform.machine())
    best = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in instruction_sets()), "no-avx2")
    return f"{maker}-family-{facts.get('cpu family', 'unknown')}-{'limited-to-avx2' if avx2 else best}"


def spread(values):
    return f"{min(values):.3f}-{max(values):.3f}"


def row(name, batch, runs):
    """A row of the table: medians over all runs, the spread of the runs' medians."""
    medians = [statistics.median(run.step_seconds) for run in runs]
    seconds = statistics.median(second for run in runs for second in run.step_seconds)
    return (f"| {name} | {seconds:.3f} | {spread(medians)} | {batch / seconds:.2f} "
            f"| {statistics.median(run.first_step_seconds for run in runs):.1f} s "
            f"| {max(run.peak_kb for run in runs) / 1e6:.2f} GB |")


def ratios(ours, theirs, of):
    """Theirs over ours, round by round."""
    return [of(b) / of(a) for a, b in zip(ours, theirs)]


def describe(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


HOW = ["Appended by `scripts/bench/cpu.py`. Float32 unless stated, random images. The programs take turns on the same cores. "
       "Seconds per step: median of the steps after the warm-up; spread: lowest and highest median of a run. Time to the end of "
       "step 1 counts from the start of the command, the second in a row. Peak memory is the largest resident set during "
       "training, without writing a checkpoint. In parentheses: minimum and maximum of the rounds."]
HEADER = ["| | seconds per step | spread | images/s | to the end of step 1 | peak memory per process |",
          "|---|---|---|---|---|---|"]


# Sides that are compared.
PAIRS = [(OURS, PYTORCH), (OURS, NEWEST), (OURS_BF16, NEWEST_BF16)]


def ratio_line(ours, theirs):
    speed = ratios(ours, theirs, lambda run: statistics.median(run.step_seconds))
    memory = ratios(theirs, ours, lambda run: run.peak_kb)
    start = ratios(theirs, ours, lambda run: run.first_step_seconds)
    return (f"speed {describe(speed)}, peak memory {describe(memory)}, launch to the end of the first step {describe(start)}.")


def comparison_lines(comparison, runs, newest):
    """`runs` maps the name of a side to its runs."""
    lines = [f"### {comparison.name}", "", *HEADER,
             *(row(side, comparison.batch, found) for side, found in runs.items()), ""]
    for ours, theirs in PAIRS:
        if ours in runs and theirs in runs:
            lines += [f"{ours} and {theirs}: {ratio_line(runs[ours], runs[theirs])}", ""]
    for precision, flags in (newest.variants_of(comparison) if newest else []):
        lines += [f"The newest PyTorch was the fastest in {precision} as: {flags}.", ""]
    return lines


def scaling_lines(comparison, together, alone):
    efficiency = ratios(together, alone, lambda run: statistics.median(run.step_seconds))
    return [f"### {comparison.model.name}, {comparison.name}, a core for each", "",
            *HEADER, row("two ranks", 2 * comparison.batch, together),
            row("two ranks without exchange", 2 * comparison.batch, alone), "",
            f"Two ranks train at {describe(efficiency)} times the speed of two that do not exchange anything.", ""]


def append_report(page, avx2, lines):
    """Appends to the page of this kind of machine, or to another one. Returns its path."""
    kind = kind_of_machine(avx2)
    page = page or ROOT / "docs/benchmarks/cpu" / f"{kind}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    head = [] if page.exists() else [f"# {kind}", "", *HOW]
    with page.open("a") as file:
        file.write("\n".join([*head, "", f"## {datetime.date.today().isoformat()}", "", *lines]).rstrip() + "\n")
    return page
