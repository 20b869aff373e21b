#!/usr/bin/env python3
"""Turns files in LIBSVM's text form (label id:value id:value ...) into TFRecords for data.format = "sparse_tfrecord".

    scripts/make_a8a.py a8a a8a/train.tfrecords
    scripts/make_a8a.py a8a.t a8a/test.tfrecords

A label of -1 becomes 0. A "#" starts a comment, and "qid:" (the query of a ranking data set) is left out. Labels and ids
that are not whole numbers, and non-finite values, end the program with a message that names file and line, and there is
no output file. https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html offers files of this kind.
"""

import math
import os
import struct
import sys

import tfrecord


def whole_number(text, what):
    """The integer that `text` is; LIBSVM's files write labels as 1, +1, -1 and 1.0."""
    number = float(text)
    if not math.isfinite(number) or number != int(number) or abs(number) >= 2 ** 31:
        raise ValueError(f"the {what} {text} is no whole number of 32 bits")
    return int(number)


def finite(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the value {text} is not finite")
    return number


def parse(line):
    """Label, ids and values of a line; nothing for an empty one."""
    words = line.split("#", 1)[0].split()
    if not words:
        return None
    label = whole_number(words[0], "label")
    if label < -1:
        raise ValueError(f"the label {label} is negative")
    ids, values = [], []
    for word in words[1:]:
        number, colon, value = word.partition(":")
        if number == "qid":
            continue
        if not colon:
            raise ValueError(f"{word!r} is no id:value")
        if not number.isdigit():
            raise ValueError(f"the id {number!r} is no number")
        ids.append(whole_number(number, "id"))
        values.append(finite(value))
    return max(0, label), ids, values


def example(label, ids, values):
    return tfrecord.example({"label": tfrecord.int64s(label), "ids": tfrecord.int64s(*ids),
                             "values": tfrecord.floats(*values)})


def convert(source, out):
    """Writes a record for each sample and returns their number."""
    count = 0
    with open(source, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            try:
                sample = parse(line)
                if sample:
                    out.write(tfrecord.record(example(*sample)))
                    count += 1
            except (ValueError, OverflowError, struct.error) as error:
                raise ValueError(f"{source}:{number}: {error}") from error
    return count


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    partial = target + ".tmp"
    try:
        with open(partial, "wb") as out:
            count = convert(source, out)
        os.replace(partial, target)
    except (OSError, ValueError) as error:
        if os.path.exists(partial):
            os.remove(partial)
        sys.exit(f"{sys.argv[0]}: {error}")
    print(f"{target}: {count} records")


if __name__ == "__main__":
    main()
