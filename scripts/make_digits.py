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


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, content):
    """A protocol-buffer field of wire type 2."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def bytes_feature(value):
    return field(1, field(1, value))


def int64_feature(value):
    return field(3, field(1, varint(value)))


def encode_example(features):
    entries = (field(1, field(1, key.encode()) + field(2, value)) for key, value in sorted(features.items()))
    return field(1, b"".join(entries))


def crc32c_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


CRC32C = crc32c_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(record):
    length = struct.pack("<Q", len(record))
    return length + masked_crc32c(length) + record + masked_crc32c(record)


def make_record(line):
    *values, label = (int(value) for value in line.split(","))
    levels = bytes(value * 255 // LARGEST for value in values)
    image = encode_png([levels[i : i + SIDE] for i in range(0, SIDE * SIDE, SIDE)])
    features = {
        "image/encoded": bytes_feature(image),
        "image/format": bytes_feature(b"png"),
        "image/height": int64_feature(SIDE),
        "image/width": int64_feature(SIDE),
        "image/class/label": int64_feature(label),
    }
    return frame(encode_example(features))


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
