"""Encodes tf.train.Example messages and TFRecords, for the scripts and tests that make data."""

import struct


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number):
    number &= 2**64 - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    """A protocol-buffer field of wire type 2."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def blobs(*values):
    return field(1, b"".join(field(1, value) for value in values))


def floats(*values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def int64s(*values):
    return field(3, field(1, b"".join(map(varint, values))))


def example(features):
    """A serialized tf.train.Example of {name: blobs(), floats() or int64s()}."""
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, values)) for name, values in features.items()))


def record(data):
    """One record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc32c(length) + data + masked_crc32c(data)
