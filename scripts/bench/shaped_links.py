#!/usr/bin/env python3
"""Measures a step over links of given speeds, and compares it with the prediction of scripts/bench/scaling.py.

    sudo scripts/bench/shaped_links.py [--gbits 5,2,1] [--ranks 1,2,4] [--transports auto,mpi] [--wires float32,bf16]
                                       [--model inception_v3] [--batch_size 4] [--rounds 1] ...

Needs root, iproute2 (ip, tc), Open MPI and two cores. The two hosts are network namespaces (virtual_hosts.py), each with one
core and --ranks ranks; a token bucket shapes the traffic that leaves them. Other options are passed on to the trainer. In
every round, all kinds of runs take turns; the table has medians.

The inputs of the model come from other measurements: the rate of the link from a plain TCP transfer, the work of the cores
per byte from the run without shaping, the step without exchange from the same job. The bytes that leave a host in a step
are the difference of two runs by the counter of its network interface.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import scaling
import virtual_hosts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PORT = 7777

SEND = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
left, block = int(sys.argv[3]), bytes(1 << 20)
began = time.monotonic()
while left > 0:
    peer.sendall(block)
    left -= len(block)
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
print(time.monotonic() - began)
"""
RECEIVE = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
peer, _ = server.accept()
while peer.recv(1 << 20):
    pass
peer.sendall(b"!")
"""


def tcp_bytes_per_second(hosts, gbits):
    """Measures the rate of one plain connection for about a second."""
    size = int((gbits or 8) * 1e9 / 8)
    place = [hosts.addresses[1], str(PORT)]
    inside = lambda host: [*hosts.inside(host), sys.executable, "-c"]
    with subprocess.Popen([*inside(1), RECEIVE, *place], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        sent = subprocess.run([*inside(0), SEND, *place, str(size)], capture_output=True, check=True)
    return size / float(sent.stdout)


def benchmark(arguments, hosts, kind, batches, directory):
    """Runs the trainer on both hosts; returns its benchmark.json as a path, and the bytes that left a host."""
    program = [arguments.trainer, "--device", "cpu", "--model", arguments.model, "--batch_size",
               str(arguments.batch_size), "--num_batches", str(batches), "--num_warmup_batches", "2",
               "--num_alone_batches", str(arguments.batches), "--benchmark_log_dir", directory, *arguments.more,
               "--comm.gradient_dtype", kind.wire, "--comm.transport", kind.transport]
    command, environment = hosts.mpirun([kind.ranks] * 2, program)
    before = hosts.sent_bytes(0)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return pathlib.Path(directory) / "benchmark.json", hosts.sent_bytes(0) - before


@dataclasses.dataclass(frozen=True)
class Kind:
    gbits: float
    wire: str
    ranks: int  # a host
    transport: str


@dataclasses.dataclass
class Measured:
    tcp: float  # bytes a second
    profile: scaling.Profile
    seconds: float  # of a step
    sent: float  # bytes that leave a host in a step


def measure(arguments, hosts, kind):
    hosts.shape(kind.gbits)
    tcp = tcp_bytes_per_second(hosts, kind.gbits)
    with tempfile.TemporaryDirectory() as directory:
        _, few = benchmark(arguments, hosts, kind, 1, directory)
        report, many = benchmark(arguments, hosts, kind, 1 + arguments.batches, directory)
        seconds = statistics.mean(json.loads(report.read_text())["step_seconds"])
        return Measured(tcp, scaling.load_profile(report), seconds, (many - few) / arguments.batches)


def median(runs):
    """The medians of the rounds. The profile is that of the run with the median step of a rank alone."""
    by_step = sorted(runs, key=lambda m: m.profile.seconds)
    return Measured(statistics.median(m.tcp for m in runs), by_step[len(runs) // 2].profile,
                    statistics.median(m.seconds for m in runs), statistics.median(m.sent for m in runs))


def job(kind, tcp, work):
    return scaling.Job(2 * kind.ranks, tcp, wire=kind.wire, host_seconds_per_byte=work, ranks_a_host=kind.ranks,
                       algorithm="stages" if kind.transport == "auto" else "mpi")


def work_per_byte(kind, measured):
    """The seconds of the cores per byte that explain this run on an unlimited link."""
    low, high = 0.0, 1e-6
    for _ in range(60):
        middle = (low + high) / 2
        step = scaling.simulate(measured.profile, job(kind, 1e30, middle))
        low, high = (middle, high) if step.seconds < measured.seconds else (low, middle)
    return middle


def report(runs):
    print("| link | wire | ranks a host | transport | TCP | sent by a host | step alone | with exchange | predicted "
          "| error |\n" + "|---" * 10 + "|")
    for kind, m in runs.items():
        free = dataclasses.replace(kind, gbits=0)
        work = work_per_byte(free, runs[free])
        predicted = scaling.simulate(m.profile, job(kind, m.tcp, work)).seconds
        shown = (f"{1e3 * predicted:.0f} ms | {100 * (predicted / m.seconds - 1):+.1f} %" if kind.gbits
                 else f"gives {1e9 * work:.2f} s/GB |")
        print(f"| {f'{kind.gbits:g} Gb/s' if kind.gbits else 'not shaped'} | {kind.wire} | {kind.ranks} | "
              f"{kind.transport} | {8e-9 * m.tcp:.2f} Gb/s | {1e-6 * m.sent:.1f} MB | {1e3 * m.profile.seconds:.0f} ms | "
              f"{1e3 * m.seconds:.0f} ms | {shown} |", flush=True)


def main():
    words = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default=str(ROOT / "build/release/trainer"))
    parser.add_argument("--gbits", type=scaling.numbers, default=[5, 2, 1])
    parser.add_argument("--model", default="inception_v3")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--batches", type=int, default=6, help="number of timed steps, and of steps without exchange")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--wires", type=words, default=["float32", "bf16"])
    parser.add_argument("--ranks", type=scaling.numbers, default=[1], help="ranks on each of the two hosts")
    parser.add_argument("--transports", type=words, default=["auto"], help="auto: two stages; mpi: everything over MPI")
    arguments, arguments.more = parser.parse_known_args()
    if os.geteuid():
        sys.exit("network namespaces need root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = [Kind(gbits, wire, int(ranks), transport) for gbits, wire, ranks, transport in
             itertools.product([0, *arguments.gbits], arguments.wires, arguments.ranks, arguments.transports)]
    runs = {kind: [] for kind in kinds}
    with virtual_hosts.Hosts(2, cores=(0, 1)) as hosts:
        for _ in range(arguments.rounds):
            for kind in kinds:
                runs[kind].append(measure(arguments, hosts, kind))
                print(kind, f"{runs[kind][-1].seconds:.3f} s, {1e-6 * runs[kind][-1].sent:.1f} MB", file=sys.stderr)
    report({kind: median(measured) for kind, measured in runs.items()})


if __name__ == "__main__":
    main()
