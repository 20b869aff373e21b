"""The report of a run. Its files are complete after each step, so that a killed run leaves all its results."""

import json
import math
import os
import time

VERDICTS = ("passed", "FAILED", "BROKEN", "skipped", "stopped", "running", "not run")
BAD = ("FAILED", "BROKEN", "stopped", "running")


def finite(value):
    """Returns the value in a form that JSON supports: non-finite numbers become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def cell(value, most=600):
    """Returns the text for a cell of a Markdown table."""
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text[:most].replace("|", "\\|")


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return lines + ["| " + " | ".join(cell(row.get(column)) for column in columns) + " |" for row in rows]


class Report:
    def __init__(self, out, modes):
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        self.title = f"GPU report: {', '.join(modes)}"
        self.end = "running"  # how the run ended; a report that still says so is that of a run that was killed
        self.warning = ""     # what the reader must know first, such as that the device is a fake
        self.facts = {"date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
        self.steps = []
        self.tables = {}      # title: rows, dictionaries with the same keys

    def plan(self, steps):
        for step in steps:
            self.steps.append({"step": step.name, "mode": step.mode, "limit": step.seconds, "verdict": "not run", "seconds": None,
                               "remark": ""})
        self.save()

    def set(self, index, verdict, remark="", seconds=None):
        self.steps[index].update(verdict=verdict, remark=remark, seconds=None if seconds is None else round(seconds, 1))
        self.save()

    def add_row(self, title, row):
        self.tables.setdefault(title, []).append(row)
        self.save()

    def sound(self):
        """Whether something was tested and nothing failed."""
        verdicts = {step["verdict"] for step in self.steps}
        return "passed" in verdicts and not verdicts.intersection(BAD)

    def summary(self):
        counts = [(verdict, sum(step["verdict"] == verdict for step in self.steps)) for verdict in VERDICTS]
        return ", ".join(f"{count} {verdict}" for verdict, count in counts if count)

    def markdown(self):
        lines = [f"# {self.title}", ""]
        if self.warning:
            lines += [f"**{cell(self.warning)}**", ""]
        how = {"running": "the run has not ended, or was killed", "ended": "the run went to its end"}
        lines += [f"{self.summary()}; {how.get(self.end, self.end)}.", ""]
        lines += [f"- {name}: {cell(value, 2000)}" for name, value in self.facts.items()]
        lines += [""] + table(("mode", "step", "verdict", "seconds", "limit", "remark"), self.steps)
        for title, rows in self.tables.items():
            lines += ["", f"## {title}", ""] + table(tuple(dict.fromkeys(key for row in rows for key in row)), rows)
        return "\n".join(lines) + "\n"

    def save(self):
        data = {"title": self.title, "end": self.end, "warning": self.warning, "summary": self.summary(), "facts": self.facts,
                "steps": self.steps, "tables": self.tables}
        for name, text in (("report.json", json.dumps(finite(data), indent=1, allow_nan=False) + "\n"), ("report.md", self.markdown())):
            part = self.out / f".{name}.part"
            with open(part, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.out / name)
