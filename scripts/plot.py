#!/usr/bin/env python3
"""Draws loss, learning rate and accuracy of runs from their metrics.jsonl, or a confusion matrix, as PNG and SVG.

    plot.py runs/digits [more directories ...] [--to runs/digits/plot]
    plot.py confusion.csv                      # written by trainer evaluate --confusion

Needs matplotlib (Debian's python3-matplotlib).
"""

import argparse
import csv
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


def draw_runs(directories):
    figure, axes = pyplot.subplots(3, 1, figsize=(9, 9), sharex=True, constrained_layout=True)
    for axis, title in zip(axes, ("loss", "learning rate", "accuracy, %")):
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("step")
    for directory in directories:
        name = os.path.basename(os.path.normpath(directory))
        draw_run(axes, directory, f"{name}: " if len(directories) > 1 else "")
    if spans_decades([loss for line in axes[0].lines for loss in line.get_ydata()]):
        axes[0].set_yscale("log")
    for axis in axes:
        if axis.lines:
            axis.legend(fontsize="small")
    return figure


def read_confusion(path):
    """The names of the classes, and a row of counts for each label."""
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header[1:], [[int(count) for count in row[1:]] for row in rows]


def draw_confusion(path):
    """The color of a cell is its share of the label's samples; few classes get names and counts."""
    most_named = 40
    names, counts = read_confusion(path)
    parts = [[count / max(sum(row), 1) for count in row] for row in counts]
    side = min(max(4, 0.45 * len(names)), 16)
    figure, axis = pyplot.subplots(figsize=(side + 1, side), constrained_layout=True)
    figure.colorbar(axis.imshow(parts, cmap="Blues", vmin=0, vmax=1), label="part of the label's samples")
    axis.set_xlabel("predicted")
    axis.set_ylabel("label")
    if len(names) <= most_named:
        axis.set_xticks(range(len(names)), names, rotation=90)
        axis.set_yticks(range(len(names)), names)
        for label, row in enumerate(counts):
            for predicted, count in enumerate(row):
                if count:
                    axis.text(predicted, label, count, ha="center", va="center", fontsize="small",
                              color="white" if parts[label][predicted] > 0.5 else "black")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="checkpoint directories of runs, or one confusion matrix (.csv)")
    parser.add_argument("--to", help="path of the output, without the ending [default: plot in the first directory, or the "
                                     "name of the matrix]")
    arguments = parser.parse_args()

    first = arguments.inputs[0]
    if first.endswith(".csv"):
        if len(arguments.inputs) > 1:
            parser.error("a confusion matrix is drawn alone")
        figure, to = draw_confusion(first), first.removesuffix(".csv")
    else:
        figure, to = draw_runs(arguments.inputs), os.path.join(first, "plot")
    to = arguments.to or to
    for ending in ("png", "svg"):
        figure.savefig(f"{to}.{ending}", dpi=120)
        print(f"{to}.{ending}")


if __name__ == "__main__":
    main()
