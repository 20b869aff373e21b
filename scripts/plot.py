#!/usr/bin/env python3
"""Draws loss, learning rate and accuracy of runs from their metrics.jsonl, as PNG and SVG.

    plot.py runs/digits [more directories ...] [--to runs/digits/plot]

Needs matplotlib (Debian's python3-matplotlib).
"""

import argparse
import json
import math
import os

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend comes first)


def rows_of(directory):
    """The rows of a run, by kind."""
    rows = {}
    with open(os.path.join(directory, "metrics.jsonl"), encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            rows.setdefault(row["kind"], []).append(row)
    return rows


def spans_decades(values):
    """Whether a linear axis would show nothing but the largest of these values."""
    values = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    return bool(values) and max(values) > 100 * min(values)


def draw_run(axes, directory, label):
    loss_axis, rate_axis, accuracy_axis = axes
    rows = rows_of(directory)
    train = rows.get("train", [])
    steps = [row["step"] for row in train]
    loss_axis.plot(steps, [row["loss"] for row in train], label=f"{label}training", linewidth=1)
    rate_axis.plot(steps, [row["lr"] for row in train], label=f"{label}learning rate", linewidth=1)
    for weights in ("raw", "ema"):
        found = [row for row in rows.get("eval", []) if row["weights"] == weights]
        if not found:
            continue
        at = [row["step"] for row in found]
        loss_axis.plot(at, [row["loss"] for row in found], ".-", label=f"{label}validation ({weights})")
        for field in ("top1", "top5"):
            accuracy_axis.plot(at, [100 * row[field] for row in found], ".-", label=f"{label}{field} ({weights})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", help="checkpoint directories of runs")
    parser.add_argument("--to", help="where to write, without ending [default: plot in the first directory]")
    arguments = parser.parse_args()

    figure, axes = pyplot.subplots(3, 1, figsize=(9, 9), sharex=True, constrained_layout=True)
    for axis, title in zip(axes, ("loss", "learning rate", "accuracy, %")):
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("step")
    for directory in arguments.directories:
        name = os.path.basename(os.path.normpath(directory))
        draw_run(axes, directory, f"{name}: " if len(arguments.directories) > 1 else "")
    if spans_decades([loss for line in axes[0].lines for loss in line.get_ydata()]):
        axes[0].set_yscale("log")
    for axis in axes:
        if axis.lines:
            axis.legend(fontsize="small")
    to = arguments.to or os.path.join(arguments.directories[0], "plot")
    for ending in ("png", "svg"):
        figure.savefig(f"{to}.{ending}", dpi=120)
        print(f"{to}.{ending}")


if __name__ == "__main__":
    main()
