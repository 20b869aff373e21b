#!/usr/bin/env python3
"""Predicts the time of a training step on N ranks from a measured step without exchange.

    mpirun -np 2 trainer --model inception3 --batch_size 32 --num_batches 10 --benchmark_log_dir DIR
    scripts/bench/scaling.py DIR/benchmark.json [--ranks 16,64,...] [--gbits 10,25,...] [--latency_us L] [--plan] [...]

benchmark.json describes the step: the buckets of the all-reduce, and when each is complete while no rank waits for
another. The model replays that step: the all-reduce of a bucket starts when the bucket is complete and the previous
all-reduce has ended, and the update follows the last all-reduce. --algorithm says how N ranks on H hosts sum:

    stages  in memory that the ranks of a host share, then between hosts: each host sends 2 (H - 1) / H times the bytes
    mpi     every rank sends 2 (N - 1) / N times the bytes (comm.transport = "mpi")
    nccl    whichever of NCCL's algorithms is faster:
            ring    2 (N - 1) messages that follow each other, all but 1 in ranks_a_host of them within a host
            tree    2 log2(H) messages between hosts, and two chains within a host

All ranks are assumed to be equally fast. docs/scaling.md compares predictions with measured steps.

--plan merges the buckets of the report as a job with NCCL does for its numbers of ranks and hosts
(src/comm/transport/bucket_plan.cc; both are tested with the same cases). The report must come from a run with small
buckets, such as one of --comm.bucket_mb 0.25.
"""

import argparse
import dataclasses
import json
import math
import sys

FLOAT_BYTES = 4
LAUNCH_SECONDS = 10e-6  # assumed delay of the computation by an all-reduce
MOST_BYTES = 24 << 20  # of a bucket
# What the plan assumes of links, per GPU, and of messages; on faster links buckets are only smaller than they need be.
ASSUMED_LINK, ASSUMED_LOCAL_LINK = 25e9 / 8, 100e9
ASSUMED_LATENCY, ASSUMED_LOCAL_LATENCY = 5e-6, 1.5e-6
WIRE_BYTES = {"float32": 4, "bf16": 2, "fp16": 2}


@dataclasses.dataclass(frozen=True)
class Bucket:
    gradients: int  # elements
    others: int  # after them, always sent as float32
    ready_seconds: float  # after the beginning of the step

    def wire_bytes(self, wire):
        return self.gradients * WIRE_BYTES[wire] + self.others * FLOAT_BYTES


@dataclasses.dataclass(frozen=True)
class Profile:
    """A step in which no rank waits for another, of the slowest rank."""

    buckets: list
    seconds: float

    def scaled_to(self, seconds):
        """The same step on a machine that is faster or slower in every part."""
        factor = seconds / self.seconds
        return Profile([dataclasses.replace(b, ready_seconds=b.ready_seconds * factor) for b in self.buckets], seconds)


@dataclasses.dataclass(frozen=True)
class Job:
    ranks: int
    bytes_per_second: float  # of a host's links together, each way
    latency_seconds: float = 0.0  # of each of the consecutive messages between hosts in a sum
    wire: str = "float32"
    host_seconds_per_byte: float = 0.0  # of the computing cores, to send or receive and add
    ranks_a_host: int = 1  # which share its links
    algorithm: str = "mpi"  # stages, mpi, ring or tree
    memory_bytes_per_second: float = math.inf  # of a host, for the sums of its ranks in stages
    local_latency_seconds: float = 0.0  # of a message within a host, of NCCL

    @property
    def hosts(self):
        return max(1, self.ranks // self.ranks_a_host)

    @property
    def senders(self):
        """The number of peers that exchange the bytes of a sum: hosts or ranks."""
        return self.hosts if self.algorithm == "stages" else self.ranks

    def sent_bytes(self, count):
        """The bytes that each rank sends, and receives, to sum `count` bytes."""
        share = self.ranks_a_host if self.algorithm == "stages" else 1
        return 2 * (self.senders - 1) / self.senders * count / share

    def link_bytes(self, count):
        """The bytes on a host's links in each direction: all that its ranks send to other hosts."""
        if self.algorithm == "mpi":
            return 2 * self.ranks_a_host * (self.ranks - self.ranks_a_host) / self.ranks * count
        return 2 * (self.hosts - 1) / self.hosts * count

    def latency(self):
        """The latency of the messages of a sum."""
        if self.algorithm == "tree":
            return 2 * (math.ceil(math.log2(self.hosts)) * self.latency_seconds
                        + (min(self.ranks, self.ranks_a_host) - 1) * self.local_latency_seconds)
        if self.algorithm == "ring":
            between = self.hosts if self.hosts > 1 else 0
            return (2 * (self.ranks - 1) / self.ranks * (between * self.latency_seconds
                                                         + (self.ranks - between) * self.local_latency_seconds))
        return 2 * (self.senders - 1) * self.latency_seconds

    def core_seconds(self, count):
        """The time of each rank's cores to sum `count` bytes; the host's memory serves the reads and writes of all its ranks."""
        local = min(self.ranks, self.ranks_a_host) if self.algorithm == "stages" else 1
        moved = 2 * count * local if local > 1 else 0
        return self.sent_bytes(count) * self.host_seconds_per_byte + moved / self.memory_bytes_per_second


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
    delay = 0.0  # of the computation, by the work of the exchange on the same cores
    free = 0.0  # the time at which the sums so far have ended
    for bucket in profile.buckets:
        count = bucket.wire_bytes(job.wire)
        begin = max(bucket.ready_seconds + delay, free)
        work = job.core_seconds(count)
        free = begin + max(job.link_bytes(count) / job.bytes_per_second, work) + job.latency()
        computing = profile.buckets[-1].ready_seconds + delay - begin  # the rest of it
        delay += min(work, max(0.0, computing))
    update = profile.seconds - profile.buckets[-1].ready_seconds
    return Step(free + update, free + update - profile.seconds)


def assumed_cost(ranks, hosts, ring):
    """The latency of an all-reduce, and the bytes per second, that plans assume for NCCL."""
    if ranks == 1:
        return 0.0, math.inf
    local = math.ceil(ranks / hosts)
    job = Job(ranks, ASSUMED_LINK * local if hosts > 1 else ASSUMED_LOCAL_LINK, ASSUMED_LATENCY, ranks_a_host=local,
              algorithm="ring" if ring or hosts == 1 else "tree", local_latency_seconds=ASSUMED_LOCAL_LATENCY)
    return job.latency(), job.bytes_per_second / (job.link_bytes(1) if hosts > 1 else job.sent_bytes(1))


def plan(buckets, wire, cost, launch=LAUNCH_SECONDS, most_bytes=MOST_BYTES):
    """The buckets merged so that the last all-reduce, with its bytes counted twice, ends as early as possible."""
    latency, rate = cost
    wire_bytes = [0]
    for bucket in buckets:
        wire_bytes.append(wire_bytes[-1] + bucket.wire_bytes(wire))
    size = len(buckets)
    finish = [-math.inf] + [math.inf] * size
    best, ends, begins = math.inf, [], []
    for count in range(1, size + 1):
        delay = (count - 1) * launch
        if buckets[-1].ready_seconds + delay >= best:
            break
        following, begin = [math.inf] * (size + 1), [0] * (size + 1)
        for j in range(count, size + 1):
            for i in range(j - 1, count - 2, -1):
                sent = wire_bytes[j] - wire_bytes[i]
                if i + 1 < j and sent > most_bytes:
                    break
                times = 2 if j == size else 1  # on a faster link, only the last bucket is left to wait for
                end = max(finish[i], buckets[j - 1].ready_seconds + delay) + latency + times * sent / rate
                if end < following[j]:
                    following[j], begin[j] = end, i
        finish = following
        begins.append(begin)
        if finish[size] < best:
            best, ends = finish[size], [size]
            for begin in reversed(begins):
                ends.append(begin[ends[-1]])
    ends.reverse()
    return [Bucket(sum(b.gradients for b in parts), sum(b.others for b in parts), parts[-1].ready_seconds)
            for parts in (buckets[i:j] for i, j in zip(ends, ends[1:]))]


def planned(profile, job):
    cost = assumed_cost(job.ranks, job.hosts, job.algorithm == "ring")
    return Profile(plan(profile.buckets, job.wire, cost), profile.seconds)


def fastest(profile, job):
    """The step and its algorithm: for "nccl" the faster of its two."""
    algorithms = ["ring", "tree"] if job.algorithm == "nccl" else [job.algorithm]
    return min(((simulate(profile, dataclasses.replace(job, algorithm=a)), a) for a in algorithms),
               key=lambda found: found[0].seconds)


def what_limits(profile, job):
    """The milliseconds that links, messages and cores each add to the step: how much shorter it would be without each."""
    whole = simulate(profile, job).seconds
    without = {"links": {"bytes_per_second": math.inf}, "messages": {"latency_seconds": 0.0, "local_latency_seconds": 0.0},
               "cores": {"host_seconds_per_byte": 0.0, "memory_bytes_per_second": math.inf}}
    lost = {name: 1e3 * (whole - simulate(profile, dataclasses.replace(job, **change)).seconds)
            for name, change in without.items()}
    return ", ".join(f"{name} {ms:,.2f} ms" for name, ms in lost.items() if ms >= 0.005) or "nothing"


def table(profile, ranks, gbits, job, limits=False, plans=False):
    """Returns Markdown: the seconds of a step and the efficiency relative to a rank alone, by ranks and link."""
    limited = f" limited at {gbits[-1]:g} Gb/s by |" if limits else ""
    lines = ["| ranks | hosts | " + ("buckets | " if plans else "") + " | ".join(f"{g:g} Gb/s" for g in gbits) + " |"
             + limited, "|---" * (len(gbits) + 2 + limits + plans) + "|"]
    for n in ranks:
        buckets = planned(profile, dataclasses.replace(job, ranks=n)) if plans else profile
        cells = [str(len(buckets.buckets))] if plans else []
        for g in gbits:
            of_link = dataclasses.replace(job, ranks=n, bytes_per_second=g * 1e9 / 8)
            step, algorithm = fastest(buckets, of_link)
            named = f", {algorithm}" if job.algorithm == "nccl" else ""
            cells.append(f"{1e3 * step.seconds:,.1f} ms, {100 * profile.seconds / step.seconds:.1f} %{named}")
            limit = what_limits(buckets, dataclasses.replace(of_link, algorithm=algorithm))
        lines.append(f"| {n:,} | {of_link.hosts} | " + " | ".join(cells) + " |" + (f" {limit} |" if limits else ""))
    return "\n".join(lines)


def numbers(text):
    return [float(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="a benchmark.json")
    parser.add_argument("--ranks", type=numbers, default=[16, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--gbits", type=numbers, default=[10, 25, 100, 400],
                        help="bandwidth of a host's links together, in each direction")
    parser.add_argument("--ranks_a_host", type=int, default=1, help="ranks that share the links of a host [default 1]")
    parser.add_argument("--algorithm", choices=["stages", "mpi", "nccl", "ring", "tree"], default="stages")
    parser.add_argument("--latency_us", type=float, default=5, help="latency of a message between hosts [default 5]")
    parser.add_argument("--local_latency_us", type=float, default=1.5,
                        help="latency of NCCL's messages within a host [default 1.5]")
    parser.add_argument("--memory_gbytes", type=float, default=math.inf,
                        help="bandwidth of a host's memory in GB/s, for the sums of its ranks [default: unlimited]")
    parser.add_argument("--wire", choices=WIRE_BYTES, default="float32", help="format on the wire (comm.gradient_dtype)")
    parser.add_argument("--plan", action="store_true", help="merge the buckets as a job with NCCL does")
    parser.add_argument("--step_ms", type=float, help="duration of the step without exchange, instead of the measured one")
    arguments = parser.parse_args()
    profile = load_profile(arguments.report)
    if arguments.step_ms:
        profile = profile.scaled_to(arguments.step_ms * 1e-3)
    job = Job(1, 1.0, arguments.latency_us * 1e-6, arguments.wire, ranks_a_host=arguments.ranks_a_host,
              algorithm=arguments.algorithm, memory_bytes_per_second=arguments.memory_gbytes * 1e9,
              local_latency_seconds=arguments.local_latency_us * 1e-6)
    total = sum(b.wire_bytes(arguments.wire) for b in profile.buckets)
    print(f"{total / 1e6:.1f} MB in {len(profile.buckets)} buckets; a step without exchange takes "
          f"{1e3 * profile.seconds:.1f} ms{' (assumed)' if arguments.step_ms else ''}, its last bucket is complete after "
          f"{1e3 * profile.buckets[-1].ready_seconds:.1f} ms; {arguments.latency_us:g} us a message\n")
    print(table(profile, [int(n) for n in arguments.ranks], arguments.gbits, job, limits=True,
                plans=arguments.plan))


if __name__ == "__main__":
    main()
