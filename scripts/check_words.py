#!/usr/bin/env python3
"""Finds words of our own for things for which the field has a word.

    check_words.py [ROOT]

Looks at code, comments, messages, tests and the manual. Fails if there are uses, and prints each with the word to
use instead. EXCEPTIONS lists the places where a word is right, with the reason.
"""

import pathlib
import re
import sys

# What is found, and what to write instead.
WORDS = [
    (r"\bsum_at_once\b|\bjoin\(stream\)", "all_reduce_now, wait"),
    (r"\bShareSum\b|\bSharedSums\b|\bshare_sum\b|\bshared_sums\b", "MpiAllReduce, ShmAllReduce"),
    (r"\bbegun\b", "started"),
    (r"\blone\b|\bLoneWait", "alone, self, StragglerWaits"),
    (r"\bblame\(|\bblamed on\b", "attribute_waits, attributed to"),
    (r"\bawaited\b", "waited for"),
    (r"\bobstacles?\b", "reason"),
    (r"\bTogether\b", "CollectiveKind"),
    (r"\bforgive|\bspeaks\(|\bfarewell\b", "discount, is_reporter, shutdown"),
    (r"\bWaitFor\b|\bWaitingHere\b", "Timeout, ScopedWait"),
    (r"\blast[ _]words\b", "fatal report"),
    (r"\bmisunderstood\b", "parse_error"),
    (r"\bwish(?:es)?\b|\bWishes\b|\bsettled?\b", "request, PendingActions, retire"),
    (r"\bStepFrame\b|\bfill_header\b", "DeviceStepState, pack_header"),
    (r"\bplaces\b", "pixels, spatial positions, offsets, matches"),
    (r"\brectified\b|\bmoved_average\b", "relu, ema"),
    (r"\bstairs?\b", "staircase"),
    (r"\bNotFinite\b|\bnot-finite\b", "non-finite"),
    (r"[Ff]olders?\b|FOLDER", "directory"),
    (r"\b[Cc]olou?red by\b|[Cc]olour", "color"),
    (r"\banew\b", "again"),
    (r"\bwhoever\b", "the caller, a program that"),
    (r"\b(?:cannot|could not) be told\b|\b[Tt]old (?:apart|of|to)\b", "unknown, distinguished, notified"),
    (r"\bst(?:ands?|ood) still\b", "stall, stalled, suspended"),
    (r"\bfor ever\b", "without end"),
]

# (file, text of the line, reason).
EXCEPTIONS = [
    (r".*", r"""["'`]folder[\\"'`]|[Ii]mage ?[Ff]olders?|image_folders?|folder_source|FolderSource|open_folder|format = "folder"|"""
            r"folder, cifar10|folder: |<folder>|IMAGE_FOLDER", "data.format = \"folder\", named after ImageFolder"),
    (r"src/app/explain_command\.cc", r"places", "a line that scripts read"),
    (r"scripts/check_words\.py|test/tooling/check_words_test\.py", r".*", "the list itself and its test"),
    (r"test/.*\.py", r"\bplaces=", "an argument of unittest"),
    (r"docs/(adr|benchmarks)/.*", r".*", "records of their time"),
]

SUFFIXES = {".cc", ".h", ".cu", ".md", ".py", ".sh", ".toml", ".cmake", ".txt"}


def files_of(root):
    """Code, tests and manual, relative to the root."""
    for top in ("src", "include", "models", "test", "scripts", "docs", "cmake"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root)
    for name in ("README.md", "CONTRIBUTING.md", "CMakeLists.txt"):
        if (root / name).exists():
            yield pathlib.Path(name)


def excepted(path, line):
    return any(re.fullmatch(file, path.as_posix()) and re.search(text, line) for file, text, _ in EXCEPTIONS)


def uses(root):
    """Each use of a word as a line of text."""
    for path in files_of(root):
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            for word, instead in WORDS:
                found = re.search(word, line)
                if found and not excepted(path, line):
                    yield f"{path}:{number}: '{found[0]}': rather {instead}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(uses(root))
    for use in found:
        print(use)
    print(f"{len(found)} words to replace")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
