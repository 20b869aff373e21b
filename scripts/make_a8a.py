#!/usr/bin/env python3
"""Turns files in LIBSVM's text form (label id:value id:value ...) into TFRecords for data.format = "sparse_tfrecord".

    scripts/make_a8a.py a8a a8a/train.tfrecords
    scripts/make_a8a.py a8a.t a8a/test.tfrecords

A label of -1 becomes 0. The input is what https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html offers.
"""

import os
import struct
import sys


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def feature(key, kind, packed):
    return field(1, field(1, key) + field(2, field(kind, field(1, packed))))


def example(line):
    label, *pairs = line.split()
    ids, values = zip(*(pair.split(":") for pair in pairs)) if pairs else ((), ())
    return field(1, feature(b"label", 3, varint(max(0, int(float(label))))) +
                 feature(b"ids", 3, b"".join(varint(int(i)) for i in ids)) +
                 feature(b"values", 2, struct.pack(f"<{len(values)}f", *map(float, values))))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    count = 0
    with open(source, encoding="ascii") as lines, open(target, "wb") as out:
        for line in filter(str.strip, lines):
            body = example(line)
            head = struct.pack("<Q", len(body))
            out.write(head + struct.pack("<I", masked_crc32c(head)) + body + struct.pack("<I", masked_crc32c(body)))
            count += 1
    print(f"{target}: {count} records")


if __name__ == "__main__":
    main()
