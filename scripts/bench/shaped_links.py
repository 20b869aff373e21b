#!/usr/bin/env python3
"""Measures a step of two ranks over links of given speeds, and compares it with the prediction of scripts/bench/scaling.py.

    sudo scripts/bench/shaped_links.py [--gbits 5,2,1] [--wires float32,bf16] [--model inception_v3] [--batch_size 4] ...

Needs root, iproute2 (ip, tc), Open MPI and two cores. Creates two network namespaces connected by a veth pair, each with its
own host name and core, shapes both ends with a token bucket (tbf), and runs the trainer's benchmark mode over TCP between
them. Options that are not its own go to the trainer. The namespaces are removed at the end, whatever happens.

The inputs of the model come from other measurements: the rate of the link from a plain TCP transfer, the work of the cores
per byte from the run without shaping, the step without exchange from the same job.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import scaling

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HOSTS = {"lockstepA": "10.77.0.1", "lockstepB": "10.77.0.2"}
NAMES = list(HOSTS)
CORES = dict(zip(NAMES, (0, 1)))
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


def run(*command):
    subprocess.run(command, check=True)


class Link:
    """The two namespaces; `with` removes them."""

    def __enter__(self):
        self.remove()
        run("ip", "link", "add", NAMES[0], "type", "veth", "peer", "name", NAMES[1])
        for name, address in HOSTS.items():
            run("ip", "netns", "add", name)
            run("ip", "link", "set", name, "netns", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", name)
            run("ip", "-n", name, "link", "set", name, "up")
        return self

    def __exit__(self, *_):
        self.remove()

    @staticmethod
    def remove():
        for name in NAMES:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in found.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def shape(gbits):
        """Both directions; 0: as fast as the machine."""
        for name in NAMES:
            tc = ["ip", "netns", "exec", name, "tc", "qdisc"]
            subprocess.run([*tc, "del", "dev", name, "root"], stderr=subprocess.DEVNULL, check=False)
            if gbits:
                run(*tc, "add", "dev", name, "root", "tbf", "rate", f"{gbits}gbit", "burst", "256kb", "latency", "100ms")

    @staticmethod
    def tcp_bytes_per_second(gbits):
        """Of one plain connection, for about a second."""
        size = int((gbits or 8) * 1e9 / 8)
        place = [HOSTS[NAMES[1]], str(PORT)]
        inside = lambda name: ["ip", "netns", "exec", name, "taskset", "-c", str(CORES[name]), sys.executable, "-c"]
        with subprocess.Popen([*inside(NAMES[1]), RECEIVE, *place], stdout=subprocess.PIPE) as server:
            server.stdout.readline()
            sent = subprocess.run([*inside(NAMES[0]), SEND, *place, str(size)], capture_output=True, check=True)
        return size / float(sent.stdout)


def agent(directory):
    """What mpirun starts its daemon on the other host with."""
    path = pathlib.Path(directory) / "agent.sh"
    name = NAMES[1]
    path.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {name} unshare --uts taskset -c {CORES[name]} '
                    f'sh -c "hostname {name}; $*"\n')
    path.chmod(0o755)
    return str(path)


def benchmark(arguments, directory, *more):
    """Runs the trainer on both hosts; returns its benchmark.json as a path."""
    name = NAMES[0]
    network = "10.77.0.0/24"
    mpirun = ["mpirun", "--bind-to", "none", "--host", ",".join(f"{a}:1" for a in HOSTS.values()), "-np", "2",
              "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent(directory), "--mca", "oob_tcp_if_include", network,
              "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network]
    job = [*mpirun, arguments.trainer, "--device", "cpu", "--model", arguments.model, "--batch_size",
           str(arguments.batch_size), "--num_batches", str(arguments.batches), "--num_warmup_batches", "2",
           "--num_alone_batches", str(arguments.batches), "--benchmark_log_dir", directory, *arguments.more, *more]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["ip", "netns", "exec", name, "unshare", "--uts", "taskset", "-c", str(CORES[name]), "sh", "-c",
               f"hostname {name}; exec {shlex.join(job)}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return pathlib.Path(directory) / "benchmark.json"


@dataclasses.dataclass
class Measured:
    gbits: float
    wire: str
    tcp: float  # bytes a second
    profile: scaling.Profile
    seconds: float  # of a step

    def job(self, work):
        return scaling.Job(2, self.tcp, wire=self.wire, host_seconds_per_byte=work)


def measure(arguments, link, gbits, wire):
    link.shape(gbits)
    tcp = link.tcp_bytes_per_second(gbits)
    with tempfile.TemporaryDirectory() as directory:
        report = benchmark(arguments, directory, "--comm.gradient_dtype", wire)
        seconds = statistics.mean(json.loads(report.read_text())["step_seconds"])
        return Measured(gbits, wire, tcp, scaling.load_profile(report), seconds)


def work_per_byte(measured):
    """The seconds of the cores for a byte that explain this run on a link without a limit."""
    low, high = 0.0, 1e-6
    for _ in range(60):
        middle = (low + high) / 2
        step = scaling.simulate(measured.profile, dataclasses.replace(measured.job(middle), bytes_per_second=1e30))
        low, high = (middle, high) if step.seconds < measured.seconds else (low, middle)
    return middle


def report(runs, wires):
    print("| link | wire | TCP | step alone | with exchange | predicted | error |\n" + "|---" * 7 + "|")
    for wire in wires:
        work = next(work_per_byte(m) for m in runs if m.wire == wire and not m.gbits)
        for m in (m for m in runs if m.wire == wire):
            predicted = scaling.simulate(m.profile, m.job(work)).seconds
            shown = (f"{1e3 * predicted:.0f} ms | {100 * (predicted / m.seconds - 1):+.1f} %" if m.gbits
                     else f"gives {1e9 * work:.2f} s/GB |")
            print(f"| {f'{m.gbits:g} Gb/s' if m.gbits else 'not shaped'} | {wire} | {8e-9 * m.tcp:.2f} Gb/s | "
                  f"{1e3 * m.profile.seconds:.0f} ms | {1e3 * m.seconds:.0f} ms | {shown} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default=str(ROOT / "build/trainer"))
    parser.add_argument("--gbits", type=scaling.numbers, default=[5, 2, 1])
    parser.add_argument("--model", default="inception_v3")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--batches", type=int, default=6, help="timed steps, and as many without exchange")
    parser.add_argument("--wires", type=lambda text: text.split(","), default=["float32", "bf16"])
    arguments, arguments.more = parser.parse_known_args()
    if os.geteuid():
        sys.exit("network namespaces need root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runs = []
    with Link() as link:
        for gbits in [0, *arguments.gbits]:
            for wire in arguments.wires:
                began = time.monotonic()
                runs.append(measure(arguments, link, gbits, wire))
                print(f"{gbits:g} Gb/s, {wire}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    report(runs, arguments.wires)


if __name__ == "__main__":
    main()
