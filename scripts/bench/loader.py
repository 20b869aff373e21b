#!/usr/bin/python3
"""Compares Lockstep's loader with torchvision's on the same photographs: images per second of processor time of a core.

    scripts/bench/loader.py --loader build/release/src/data/lockstep_loader_benchmark 'imagenet/train-*'

Both read ImageNet TFRecords, decode, crop a random area (8 to 100 %), resize it, flip every other one, normalize, and
collect batches of 32. Processor time is measured instead of wall-clock time, so that other work on the machine matters
little. The two run in turn, several times, and the medians are compared.
"""

import argparse
import glob
import io
import resource
import statistics
import struct
import subprocess
import sys


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        yield data[position + 12:position + 12 + length]
        position += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Yields (number, body) of every field of wire type 2, and skips the others."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        length, start = varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, data[start:start + length]
            at = start + length
        else:
            at = start if tag & 7 == 0 else at + (4 if tag & 7 == 5 else 8)


def encoded_image(record):
    for _, features in fields(record):
        for _, entry in fields(features):
            parts = dict(fields(entry))
            if parts.get(1) == b"image/encoded":
                return dict(fields(dict(fields(parts[2]))[1]))[1]
    raise ValueError("a record without image/encoded")


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def torchvision_rate(images, size, passes):
    import torch
    from PIL import Image
    from torchvision import transforms

    torch.set_num_threads(1)
    transform = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(),
                                    transforms.ToTensor(),
                                    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

    class Photographs(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            return transform(Image.open(io.BytesIO(images[index])).convert("RGB")), 0

    loader = torch.utils.data.DataLoader(Photographs(), batch_size=32, shuffle=True)
    next(iter(loader))
    start = cpu_seconds()
    count = sum(len(labels) for _ in range(passes) for _, labels in loader)
    return count / (cpu_seconds() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pattern", help="TFRecord files")
    parser.add_argument("--loader", required=True, help="path of lockstep_loader_benchmark")
    parser.add_argument("--size", type=int, default=299)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    paths = sorted(glob.glob(arguments.pattern))
    images = [encoded_image(record) for path in paths for record in records(path)]
    if not images:
        sys.exit(f"no record in {arguments.pattern}")
    ours, theirs = [], []
    for _ in range(arguments.repeat):
        command = [arguments.loader, arguments.pattern, str(arguments.size), str(arguments.passes)]
        ours.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        theirs.append(torchvision_rate(images, arguments.size, arguments.passes))
        print(f"lockstep {ours[-1]:.0f}, torchvision {theirs[-1]:.0f} images a core-second", flush=True)
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"{len(images)} images, {arguments.size} pixels: lockstep {statistics.median(ours):.0f}, torchvision "
          f"{statistics.median(theirs):.0f} images a core-second; {ratio:.2f} times")


if __name__ == "__main__":
    main()
