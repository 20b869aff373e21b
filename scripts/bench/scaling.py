#!/usr/bin/env python3
"""Predicts the time of a training step on N ranks from a measured step without exchange.

    mpirun -np 2 trainer --model inception3 --batch_size 32 --num_batches 10 --benchmark_log_dir DIR
    scripts/bench/scaling.py DIR/benchmark.json [--ranks 16,64,...] [--gbits 10,25,...] [--latency_us L] [...]

benchmark.json describes the step: the buckets of the all-reduce, and when each is complete while no rank waits for
another. The model replays that step: the all-reduce of a bucket starts when the bucket is complete and the previous
all-reduce has ended, and the update follows the last all-reduce. With two stages, each of H hosts sends 2 (H - 1) / H times
the bytes of a bucket, in 2 (H - 1) messages; otherwise each of N ranks sends 2 (N - 1) / N times the bytes. All ranks are
assumed to be equally fast. docs/scaling.md compares it with measured steps.
"""

import argparse
import dataclasses
import json
import sys

FLOAT_BYTES = 4
WIRE_BYTES = {"float32": 4, "bf16": 2, "fp16": 2}


@dataclasses.dataclass(frozen=True)
class Bucket:
    gradients: int  # elements
    others: int  # behind them, float32 on any wire
    ready_seconds: float  # after the beginning of the step

    def wire_bytes(self, wire):
        return self.gradients * WIRE_BYTES[wire] + self.others * FLOAT_BYTES


@dataclasses.dataclass(frozen=True)
class Profile:
    """A step in which no rank waits for another: that of the slowest rank."""

    buckets: list
    seconds: float

    def scaled_to(self, seconds):
        """The same step on a faster or slower machine, every part of it alike."""
        factor = seconds / self.seconds
        return Profile([dataclasses.replace(b, ready_seconds=b.ready_seconds * factor) for b in self.buckets], seconds)


@dataclasses.dataclass(frozen=True)
class Job:
    ranks: int
    bytes_per_second: float  # of a host's link, each way
    latency_seconds: float = 0.0  # of each of the messages that follow each other in a sum
    wire: str = "float32"
    host_seconds_per_byte: float = 0.0  # of the cores that compute, for what they send or receive and add
    ranks_a_host: int = 1  # which share its link
    two_stages: bool = False  # the ranks of a host sum in shared memory; each exchanges its share with the other hosts

    @property
    def senders(self):
        """How many send the bytes of a sum to each other: hosts or ranks."""
        return max(1, self.ranks // self.ranks_a_host) if self.two_stages else self.ranks

    def sent_bytes(self, count):
        """What each rank sends, and receives, to sum `count` bytes: by a ring, or each rank a share of the sum."""
        share = self.ranks_a_host if self.two_stages else 1
        return 2 * (self.senders - 1) / self.senders * count / share

    def link_bytes(self, count):
        """What passes a host's link each way: all that its ranks send to other hosts, each rank summing a share."""
        if self.two_stages:
            return self.sent_bytes(count) * self.ranks_a_host
        return 2 * self.ranks_a_host * (self.ranks - self.ranks_a_host) / self.ranks * count


@dataclasses.dataclass(frozen=True)
class Step:
    seconds: float
    exposed_seconds: float  # beyond the step without exchange


def load_profile(path):
    with open(path) as file:
        report = json.load(file)
    alone = report.get("alone")
    if not alone or not alone["buckets"]:
        sys.exit(f"{path}: says nothing of steps alone (a run on GPUs, of --forward_only, or --num_alone_batches 0)")
    seconds = alone["rank_seconds"]
    return Profile([Bucket(**b) for b in alone["buckets"]], seconds[0]).scaled_to(max(seconds))


def simulate(profile, job):
    delay = 0.0  # of computing, by the work that exchanging has taken from the same cores
    free = 0.0  # when the sums so far have ended
    for bucket in profile.buckets:
        count = bucket.wire_bytes(job.wire)
        begin = max(bucket.ready_seconds + delay, free)
        work = job.sent_bytes(count) * job.host_seconds_per_byte
        sending = max(job.link_bytes(count) / job.bytes_per_second, work)
        free = begin + sending + 2 * (job.senders - 1) * job.latency_seconds
        computing = profile.buckets[-1].ready_seconds + delay - begin  # what is left of it
        delay += min(work, max(0.0, computing))
    update = profile.seconds - profile.buckets[-1].ready_seconds
    return Step(free + update, free + update - profile.seconds)


def table(profile, ranks, gbits, job):
    """Markdown: the seconds of a step and the efficiency against a rank alone, by ranks and link."""
    lines = ["| ranks | " + " | ".join(f"{g:g} Gb/s" for g in gbits) + " |", "|---" * (len(gbits) + 1) + "|"]
    for n in ranks:
        steps = [simulate(profile, dataclasses.replace(job, ranks=n, bytes_per_second=g * 1e9 / 8)) for g in gbits]
        lines.append(f"| {n:,} | " + " | ".join(f"{1e3 * s.seconds:,.1f} ms, {100 * profile.seconds / s.seconds:.1f} %"
                                               for s in steps) + " |")
    return "\n".join(lines)


def numbers(text):
    return [float(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="a benchmark.json")
    parser.add_argument("--ranks", type=numbers, default=[16, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--gbits", type=numbers, default=[10, 25, 100, 400], help="of a host's link, each way")
    parser.add_argument("--ranks_a_host", type=int, default=1, help="which share its link [default 1]")
    parser.add_argument("--over_mpi", action="store_true", help="not in two stages (comm.transport = mpi)")
    parser.add_argument("--latency_us", type=float, default=5, help="of one message [default 5]")
    parser.add_argument("--wire", choices=WIRE_BYTES, default="float32", help="comm.gradient_dtype")
    parser.add_argument("--step_ms", type=float, help="assume this step without exchange instead of the measured one")
    arguments = parser.parse_args()
    profile = load_profile(arguments.report)
    if arguments.step_ms:
        profile = profile.scaled_to(arguments.step_ms * 1e-3)
    job = Job(1, 1.0, arguments.latency_us * 1e-6, arguments.wire, ranks_a_host=arguments.ranks_a_host,
              two_stages=not arguments.over_mpi)
    total = sum(b.wire_bytes(arguments.wire) for b in profile.buckets)
    print(f"{total / 1e6:.1f} MB in {len(profile.buckets)} buckets; a step without exchange takes "
          f"{1e3 * profile.seconds:.1f} ms{' (assumed)' if arguments.step_ms else ''}, its last bucket is complete after "
          f"{1e3 * profile.buckets[-1].ready_seconds:.1f} ms; {arguments.latency_us:g} us a message\n")
    print(table(profile, [int(n) for n in arguments.ranks], arguments.gbits, job))


if __name__ == "__main__":
    main()
