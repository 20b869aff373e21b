#!/usr/bin/env python3
"""Proves the layer rules of the source tree from its #include lines.

    check_layers.py [ROOT] [--lengths]

Fails on: an include that goes to a peer or upward; a private header of another layer; a vendor header under include/;
a header without `#pragma once`; a header that is in both trees, or under include/ although no other layer needs it; a
directory that holds more than an eighth of the program; a backend that lacks the file of a family of operations; a source
that no CMakeLists.txt lists; a glob in CMake.
`--lengths` also lists files and functions beyond the house limits (a report, never a failure).
"""

import argparse
import pathlib
import re
import sys

# A file may include its own layer and any of a lower level, never a peer, never upward.
LEVELS = {
    "base": 0,
    "tensor": 1, "io": 1,
    "ops": 2, "config": 2,
    "backend": 3,
    "graph": 4, "comm": 4, "data": 4, "checkpoint": 4,
    "models": 5, "exchange": 5, "observe": 5,
    "train": 6,
    "app": 7,
}
# Model authors write against the graph builder alone; models from files are text.
ONLY = {"models": {"models", "graph", "ops", "tensor", "io", "base"}, "config": {"config", "io", "base"}}

VENDOR = re.compile(
    r"^(mpi|hdf5|H5\w*|dnnl\w*|cuda\w*|cublas\w*|cudnn\w*|nccl\w*|jpeglib|turbojpeg|png)\.(h|hpp)$"
    r"|^(oneapi|toml\+\+|CLI|google|catch2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCE_SUFFIXES = {".cc", ".cu"}
# Each backend has one file of this name for each family of operations, so that an operation is found by one name.
BACKENDS = ["reference", "cpu", "cuda"]
FAMILIES = ["batch_norm", "conv2d", "embedding", "linear", "local_response_norm", "loss", "placement", "pointwise", "pool",
            "update"]
LARGEST_ROOM = 1 / 8  # of the program's lines, in one directory
LIMITS = {".h": 200, ".cc": 400, ".cu": 400}
FUNCTION_LIMIT = 60


def layer_of(path):
    """The layer a file (relative to the root) belongs to, or None."""
    parts = path.parts
    if parts[0] == "models":
        return "models"
    if parts[0] == "src":
        return parts[1]
    if parts[:2] == ("include", "lockstep"):
        return parts[2]
    return None


def target_of(name):
    """(layer, whether it is that layer's private header) of an include name, or None for a vendor or system header."""
    parts = pathlib.PurePosixPath(name).parts
    if parts[0] == "lockstep" and len(parts) > 2:
        return parts[1], False
    if len(parts) > 1 and parts[0] in LEVELS:
        return parts[0], True
    return None


def check_include(path, layer, name):
    """The complaint about one include of a file of `layer`, or None."""
    if path.parts[0] == "include" and VENDOR.match(name):
        return f"vendor header <{name}> under include/"
    target = target_of(name)
    if target is None:
        return None
    target_layer, private = target
    if target_layer not in LEVELS:
        return f'"{name}" is of no known layer'
    if target_layer == layer:
        if private and path.parts[0] == "include":
            return f'public header includes the private "{name}"'
        return None
    if private:
        return f'"{name}" is a private header of layer {target_layer}'
    if LEVELS[target_layer] >= LEVELS[layer]:
        relation = "its peer" if LEVELS[target_layer] == LEVELS[layer] else "upward to"
        return f'layer {layer} includes {relation} {target_layer}: "{name}"'
    if target_layer not in ONLY.get(layer, LEVELS):
        return f'layer {layer} may not include {target_layer}: "{name}"'
    return None


def check_file(root, path):
    """All complaints about the includes of one file, as (line number, text)."""
    layer = layer_of(path)
    if layer not in LEVELS:
        return [(1, f"directory of no known layer: {layer}")]
    text = (root / path).read_text(encoding="utf-8")
    complaints = []
    if path.suffix == ".h" and "#pragma once" not in text:
        complaints.append((1, "header without #pragma once"))
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if found and (complaint := check_include(path, layer, found[2])):
            complaints.append((number, complaint))
    return complaints


def room_of(path):
    """The directory of a file without its tree: src/comm/group and include/lockstep/comm/group are one room."""
    parts = path.parent.parts
    if parts[0] == "src":
        return "/".join(parts[1:])
    if parts[:2] == ("include", "lockstep"):
        return "/".join(parts[2:])
    return "/".join(parts)


def header_places(root, files):
    """Complaints about headers in both trees, and about public ones that only their own layer includes."""
    headers = {path for path in files if path.suffix == ".h"}
    public = {path for path in headers if path.parts[0] == "include"}
    complaints = []
    needed = set()
    for path in files:
        text = (root / path).read_text(encoding="utf-8")
        for name in (found[2] for line in text.splitlines() if (found := INCLUDE.match(line))):
            header = pathlib.Path("include") / name
            if header in public and (layer_of(path) != layer_of(header) or path in public):
                needed.add(header)
    for header in sorted(public):
        if pathlib.Path("src", *header.parts[2:]) in headers:
            complaints.append(f"{header}: a header of this name stands in src/ too")
        if header not in needed:
            complaints.append(f"{header}: no other layer includes it: it belongs beside its source")
    return complaints


def large_rooms(root, files):
    """Complaints about directories that contain too much of the program."""
    lines = {}
    for path in files:
        room = room_of(path)
        lines[room] = lines.get(room, 0) + len((root / path).read_text(encoding="utf-8").splitlines())
    limit = LARGEST_ROOM * sum(lines.values())
    return [f"{room}: {count} lines, more than an eighth of the program" for room, count in sorted(lines.items())
            if count > limit]


def missing_families(files):
    """Complaints about families of operations for which a backend has no file."""
    expected = [pathlib.Path("src/backend", backend, f"{family}.cc") for backend in BACKENDS for family in FAMILIES]
    return [f"{path}: missing, though each backend has the same families of operations" for path in expected
            if path not in files]


def unlisted_sources(root):
    """Sources that no CMakeLists.txt in their directory or above it names by a path relative to itself."""
    unlisted = []
    for path in files_under(root, ["src", "models", "test"], SOURCE_SUFFIXES):
        for directory in path.parents:
            lists = root / directory / "CMakeLists.txt"
            name = re.escape(path.relative_to(directory).as_posix())
            if lists.exists() and re.search(rf"(^|[\s(\"]){name}($|[\s)\"])", lists.read_text(), re.MULTILINE):
                break
        else:
            unlisted.append(path)
    return unlisted


def globs(root):
    """CMake files that collect sources by pattern."""
    lists = [path for path in files_under(root, ["."], {".txt", ".cmake"})
             if path.suffix == ".cmake" or path.name == "CMakeLists.txt"]
    return [path for path in lists if re.search(r"^\s*file\s*\(\s*GLOB", (root / path).read_text(), re.MULTILINE)]


def files_under(root, directories, suffixes):
    """Files below the directories of the root, relative to it and sorted; build trees and hidden directories at the top left out."""
    found = set()
    for directory in directories:
        for path in (root / directory).rglob("*"):
            relative = path.relative_to(root)
            if path.suffix in suffixes and not relative.parts[0].startswith((".", "build")):
                found.add(relative)
    return sorted(found)


def long_pieces(root):
    """Lines that report files and functions beyond the limits."""
    report = []
    for path in files_under(root, ["include", "src", "models"], set(LIMITS)):
        lines = (root / path).read_text(encoding="utf-8").splitlines()
        if len(lines) > LIMITS[path.suffix]:
            report.append(f"{path}: {len(lines)} lines, the limit is {LIMITS[path.suffix]}")
        start = None
        for number, line in enumerate(lines, 1):
            # clang-format puts a function's head and closing brace at the same column, 0 at namespace level.
            if re.match(r"[A-Za-z_].*\(.*", line) and not line.endswith(";"):
                start = number
            elif line == "}" and start is not None:
                if number - start + 1 > FUNCTION_LIMIT:
                    report.append(f"{path}:{start}: function of {number - start + 1} lines, the limit is {FUNCTION_LIMIT}")
                start = None
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--lengths", action="store_true", help="also report files and functions beyond the limits")
    arguments = parser.parse_args()
    root = arguments.root

    files = files_under(root, ["include/lockstep", "src", "models"], {".h", ".inc"} | SOURCE_SUFFIXES)
    complaints = [f"{path}:{number}: {text}" for path in files for number, text in check_file(root, path)]
    complaints += header_places(root, files)
    complaints += large_rooms(root, files)
    complaints += missing_families(files)
    complaints += [f"{path}: listed in no CMakeLists.txt" for path in unlisted_sources(root)]
    complaints += [f"{path}: collects sources by file(GLOB)" for path in globs(root)]
    for complaint in complaints:
        print(complaint)
    if arguments.lengths:
        for line in long_pieces(root):
            print(f"note: {line}")
    print(f"{len(files)} files, {len(complaints)} complaints")
    return 1 if complaints or not files else 0


if __name__ == "__main__":
    sys.exit(main())
