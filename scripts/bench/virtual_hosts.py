"""Several hosts on one machine: network namespaces on a bridge, each with its own host name, for mpirun over TCP.

Needs root, iproute2 (ip, tc) and Open MPI:

    with virtual_hosts.Hosts(2) as hosts:
        hosts.shape(1)  # Gb/s
        command, environment = hosts.mpirun([2, 2], [trainer, "--config", path])
"""

import os
import pathlib
import shlex
import signal
import subprocess
import tempfile

NETWORK = "10.77.0.0/24"
DEVICE = "eth0"  # of each host


def run(*command):
    subprocess.run(command, check=True)


class Hosts:
    """`with` creates the namespaces and removes them, with all processes in them."""

    def __init__(self, count, cores=()):
        """`cores`: the core of each host, if its ranks are bound to it."""
        self.spaces = [f"lockstep-{os.getpid()}-{i}" for i in range(count)]
        self.switch = f"lockstep-{os.getpid()}-switch"
        self.addresses = [f"10.77.0.{i + 1}" for i in range(count)]
        self.names = [f"host{i}" for i in range(count)]
        self.cores = cores
        self.directory = tempfile.TemporaryDirectory()

    def __enter__(self):
        try:
            self.create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def create(self):
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for i, (space, address) in enumerate(zip(self.spaces, self.addresses)):
            run("ip", "netns", "add", space)
            run("ip", "link", "add", DEVICE, "netns", space, "type", "veth", "peer", "name", f"port{i}", "netns",
                self.switch)
            run("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", DEVICE)
            run("ip", "-n", space, "link", "set", DEVICE, "up")
        # Open MPI starts its daemon on another host with this.
        agent = pathlib.Path(self.directory.name) / "agent.sh"
        cases = "".join(f"{a}) {shlex.join(self.inside(i))} sh -c \"hostname {self.names[i]}; $*\";;\n"
                        for i, a in enumerate(self.addresses))
        agent.write_text(f"#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}esac\n")
        agent.chmod(0o755)
        self.agent = str(agent)

    def __exit__(self, *_):
        for space in [*self.spaces, self.switch]:
            found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
            for pid in found.stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)
        self.directory.cleanup()

    def inside(self, host):
        """Returns the beginning of a command that runs on a host, but still with this machine's host name."""
        bound = ["taskset", "-c", str(self.cores[host])] if self.cores else []
        return ["ip", "netns", "exec", self.spaces[host], "unshare", "--uts", *bound]

    def shape(self, gbits):
        """Limits the traffic that leaves each host by a token bucket; 0: no limit."""
        for space in self.spaces:
            tc = ["ip", "netns", "exec", space, "tc", "qdisc"]
            subprocess.run([*tc, "del", "dev", DEVICE, "root"], stderr=subprocess.DEVNULL, check=False)
            if gbits:
                run(*tc, "add", "dev", DEVICE, "root", "tbf", "rate", f"{gbits}gbit", "burst", "256kb", "latency", "100ms")

    def set_interface(self, host, state):
        """Takes the host's network interface "up" or "down"."""
        run("ip", "-n", self.spaces[host], "link", "set", DEVICE, state)

    def sent_bytes(self, host):
        """The bytes that have left the host so far, by the counter of its interface."""
        counter = f"/sys/class/net/{DEVICE}/statistics/tx_bytes"
        return int(subprocess.run([*self.inside(host), "cat", counter], capture_output=True, check=True).stdout)

    def mpirun(self, ranks, program, flags=()):
        """Returns the command, and its environment, that runs `program` with these numbers of ranks on the hosts."""
        slots = ",".join(f"{a}:{n}" for a, n in zip(self.addresses, ranks))
        mpirun = ["mpirun", "--bind-to", "none", "--map-by", "slot", "--host", slots, "-np", str(sum(ranks)),
                  "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", self.agent, "--mca", "plm_rsh_no_tree_spawn", "1",
                  "--mca", "oob_tcp_if_include", NETWORK, "--mca", "btl_tcp_if_include", NETWORK, *flags]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        shell = f"hostname {self.names[0]}; exec {shlex.join([*mpirun, *program])}"
        return [*self.inside(0), "sh", "-c", shell], environment
