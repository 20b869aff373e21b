#!/usr/bin/env python3
"""Enters the results of ctest's JUnit files into a page that lists the last run of each slow test of a build.

usage: slow_report.py PAGE BUILD JUNIT_FILE...
"""
import datetime
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

HEADER = """# Slow tests

The last run of each slow test. `scripts/test_slow.sh` runs all of them, one after the other, and writes this page; one of
them: `ctest --preset release -R NAME`.

| test | result | seconds | date | commit |
|---|---|---|---|---|
"""
RESULTS = {"run": "passed", "fail": "failed", "notrun": "skipped"}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def machine():
    with open("/etc/os-release", encoding="utf-8") as release:
        system = next(line.split("=", 1)[1].strip().strip('"') for line in release if line.startswith("PRETTY_NAME"))
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = {line.split(":", 1)[1].strip() for line in info if line.startswith("model name")}
    return f"{system}, {', '.join(sorted(names)) or platform.machine()}, {os.cpu_count()} cores"


def rows_of(page):
    """{test: the rest of its row} of an existing page."""
    if not os.path.exists(page):
        return {}
    with open(page, encoding="utf-8") as file:
        cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells if row[0] != "test"}


def main():
    page, build, *reports = sys.argv[1:]
    where = [str(datetime.date.today()), output_of("git", "rev-parse", "--short", "HEAD").strip()]
    cases = [case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")]
    if not cases:
        sys.exit("no slow test ran")
    rows = rows_of(page)
    for case in cases:
        result = RESULTS.get(case.get("status"), case.get("status"))
        rows[case.get("name")] = [result, f"{float(case.get('time', 0)):.0f}", *where]
    names = re.findall(r"^ *Test +#\d+: (.+)$", output_of("ctest", "--test-dir", build, "-N", "-L", "slow"), re.MULTILINE)
    with open(page, "w", encoding="utf-8") as file:
        file.write(HEADER)
        for name in sorted(names):
            file.write(f"| {' | '.join([name, *rows.get(name, ['not run', '', '', ''])])} |\n")
        file.write(f"\nThe newest ran on {machine()}.\n")


if __name__ == "__main__":
    main()
