#!/usr/bin/env python3
"""Makes data/digits/{train,validation}.tfrecord from data/digits/digits.csv.

    scripts/make_digits.py            write both files
    scripts/make_digits.py --check    exit with 1 unless they are exactly what would be written

Row i of the CSV file is a validation sample when i is a multiple of 5 (360 of 1,797), else a training sample (1,437).
Every record is a tf.train.Example with the features of the ImageNet converters: image/encoded (an 8 x 8 gray PNG),
image/format, image/height, image/width and image/class/label (0..9). The output depends on nothing but the CSV file:
the PNG data are stored without compression, so that no version of zlib can change them.
"""

import argparse
import pathlib
import struct
import sys
import zlib

import tfrecord

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits"
SIDE = 8
LARGEST = 16  # the CSV file's brightest value


def png_chunk(kind, content):
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def encode_png(rows):
    """An 8-bit gray PNG of `rows`, a list of equally long bytes objects."""
    raw = b"".join(b"\0" + row for row in rows)  # filter type 0 before every row
    stored = b"\x01" + struct.pack("<HH", len(raw), len(raw) ^ 0xFFFF) + raw  # one last, stored block
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(raw))
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", data)
        + png_chunk(b"IEND", b"")
    )


def make_record(line):
    *values, label = (int(value) for value in line.split(","))
    levels = bytes(value * 255 // LARGEST for value in values)
    image = encode_png([levels[i : i + SIDE] for i in range(0, SIDE * SIDE, SIDE)])
    # The entries of a map may have any order; the files have them in the order of their names.
    return tfrecord.record(tfrecord.example({
        "image/class/label": tfrecord.int64s(label),
        "image/encoded": tfrecord.blobs(image),
        "image/format": tfrecord.blobs(b"png"),
        "image/height": tfrecord.int64s(SIDE),
        "image/width": tfrecord.int64s(SIDE),
    }))


def make_files():
    records = {"train.tfrecord": [], "validation.tfrecord": []}
    for i, line in enumerate((DIRECTORY / "digits.csv").read_text().splitlines()):
        records["validation.tfrecord" if i % 5 == 0 else "train.tfrecord"].append(make_record(line))
    return {name: b"".join(content) for name, content in records.items()}


def main():
    parser = argparse.ArgumentParser(description="Makes the digits data set that Lockstep ships.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    status = 0
    for name, content in make_files().items():
        path = DIRECTORY / name
        if not check:
            path.write_bytes(content)
        elif path.read_bytes() != content:
            print(f"{path}: differs from what {sys.argv[0]} writes", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
