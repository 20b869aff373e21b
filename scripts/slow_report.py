#!/usr/bin/env python3
"""Turns ctest's JUnit file of the slow tests into test/slow_tests.md (standard output)."""
import datetime
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = {line.split(":", 1)[1].strip() for line in info if line.startswith("model name")}
    return ", ".join(sorted(names)) or platform.machine()


def system():
    with open("/etc/os-release", encoding="utf-8") as release:
        return next(line.split("=", 1)[1].strip().strip('"') for line in release if line.startswith("PRETTY_NAME"))


def main():
    cases = list(ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print("# Slow tests\n")
    print("The last run of `scripts/test_slow.sh`, which writes this page. One of them: `ctest --preset release -R NAME`.\n")
    print(f"{datetime.date.today()}, commit {commit.stdout.strip() or 'unknown'}, {system()}, {processor()}, "
          f"{os.cpu_count()} cores.\n")
    print("| test | result | seconds |\n|---|---|---|")
    for case in sorted(cases, key=lambda c: c.get("name")):
        result = {"run": "passed", "fail": "failed", "notrun": "skipped"}.get(case.get("status"), case.get("status"))
        print(f"| {case.get('name')} | {result} | {float(case.get('time', 0)):.0f} |")
    print(f"\nIn all {sum(float(case.get('time', 0)) for case in cases) / 60:.0f} minutes, one after the other.")
    if not cases:
        sys.exit("no slow test ran")


if __name__ == "__main__":
    main()
