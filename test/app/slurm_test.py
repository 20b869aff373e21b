"""The batch files of scripts/slurm under a real Slurm on this machine: one node, or two in network namespaces."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import kit

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts/bench"))
import virtual_hosts

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/slurm")
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")


def find(program):
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    """munged, slurmctld and a slurmd on each node, in a directory of their own, stopped by close()."""

    def __init__(self, directory, hosts=None, processors=None):
        """`hosts`: the nodes, of which the first has slurmctld and the user; otherwise this machine is the only node.
        `processors`: what slurm.conf says of those of a node."""
        self.directory = directory
        self.hosts = hosts
        self.processors = processors or f"CPUs={max(2, os.cpu_count())}"
        self.daemons = []
        self.env = kit.environment({"SLURM_CONF": self.path("slurm.conf"), "TRAINER": kit.TRAINER})
        self.names, self.addresses = [socket.gethostname().split(".")[0]], ["127.0.0.1"]
        if hosts:
            self.names, self.addresses = hosts.names, hosts.addresses
        for name in ("state", *(f"spool-{node}" for node in self.names), "tmp", "munge", "socket"):
            os.makedirs(self.path(name), mode=0o755)
        os.chmod(directory, 0o711)
        os.chmod(self.path("munge"), 0o700)
        with open(self.path("munge/munge.key"), "wb", opener=lambda p, f: os.open(p, f, 0o400)) as key:
            key.write(os.urandom(128))
        self.configure()

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def configure(self):
        # Open MPI names its shared memory after the job: two clusters on one machine must not count alike.
        nodes = "\n".join(f"NodeName={n} NodeAddr={a} {self.processors} RealMemory=4000 State=UNKNOWN"
                          for n, a in zip(self.names, self.addresses))
        controller, node = free_ports(2)
        kit.write(self.path("slurm.conf"), f"""
ClusterName=test
FirstJobId={random.randrange(1000, 1000000)}
SlurmctldHost={self.names[0]}({self.addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self.path("socket/munge")}
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={self.path("state")}
SlurmdSpoolDir={self.path("spool")}-%n
TmpFS={self.path("tmp")}
SlurmctldPidFile={self.path("slurmctld.pid")}
SlurmdPidFile={self.path("slurmd")}-%n.pid
SlurmctldLogFile={self.path("slurmctld.log")}
SlurmdLogFile={self.path("slurmd")}-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SwitchType=switch/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MailProg=/bin/true
{nodes}
PartitionName=test Nodes={",".join(self.names)} Default=YES MaxTime=60 State=UP
""")

    def start(self):
        munge = [find("munged"), "--foreground", "--force", "--key-file", self.path("munge/munge.key"), "--socket",
                 self.path("socket/munge"), "--pid-file", self.path("munge/pid"), "--log-file",
                 self.path("munge/log"), "--seed-file", self.path("munge/seed")]
        slurmd = [self.on_node(i, find("slurmd"), "-D", "-c") for i in range(len(self.names))]
        for command in (munge, self.on_node(0, find("slurmctld"), "-D", "-c"), *slurmd):
            self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            if command is munge:
                wait_until(lambda: os.path.exists(self.path("socket/munge")), "munge's socket")
        wait_until(lambda: self.output("sinfo", "--noheader", "--format=%t") == "idle", "idle nodes")

    def on_node(self, index, *command):
        """The command that runs there. Nodes have temporary files of their own, in which those of a job are named alike."""
        if not self.hosts:
            return command
        script = f"hostname {self.names[index]}; mount -t tmpfs tmpfs {self.path('tmp')}; exec \"$@\""
        network = f"--net=/run/netns/{self.hosts.spaces[index]}"
        return ["nsenter", network, "unshare", "--uts", "--mount", "sh", "-c", script, "sh", *command]

    def output(self, program, *arguments):
        run = subprocess.run(self.on_node(0, find(program), *arguments), env=self.env, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, timeout=60, check=False)
        return run.stdout.decode().strip()

    def job(self, number):
        """What scontrol knows of a job: {field: value}."""
        return dict(re.findall(r"(\w+)=(\S*)", self.output("scontrol", "show", "job", number)))

    def close(self):
        self.output("scancel", "--full", "--user=root")
        try:
            wait_until(lambda: not self.output("squeue", "--noheader", "--states=running,completing"), "no job", 20)
        except AssertionError:
            pass  # the daemons go in any case
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def wait_until(condition, what, timeout=60):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not seen within {timeout} s")
        time.sleep(0.1)


class OnSlurm(kit.TestCase):
    hosts = None
    tasks = ()  # options of sbatch
    killed = 1  # the rank that a test kills

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.path("cluster"), self.hosts)
        self.addCleanup(self.cluster.close)
        self.cluster.start()
        self.records(60)
        self.log = self.path("job.log")

    def settings(self, **changes):
        return self.config({"train.steps": 1000000, "train.epochs": 1e6, "checkpoint.directory": self.path("run"),
                            **{k.replace("__", "."): v for k, v in changes.items()}})

    def submit(self, launcher, *options):
        number = self.cluster.output("sbatch", "--parsable", "--cpus-per-task=1", f"--output={self.log}",
                                     f"--chdir={self.directory}", *self.tasks, *options,
                                     os.path.join(SCRIPTS, f"{launcher}.sbatch"), "run.toml")
        self.assertRegex(number, r"^\d+$")
        return number

    def text(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def wait_for(self, condition, what, timeout=90):
        try:
            wait_until(condition, what, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def wait_for_steps(self, count=3):
        self.wait_for(lambda: self.text().count(": step ") >= count, "steps")

    def wait_for_state(self, job, *states):
        self.wait_for(lambda: self.cluster.job(job).get("JobState") in states, f"state {states}")

    def ranks(self):
        """{rank: process id} of the trainers that belong to this cluster."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    variables = dict(v.split("=", 1) for v in file.read().decode(errors="replace").split("\0")
                                     if "=" in v)
                if (variables.get("SLURM_CONF") == self.cluster.path("slurm.conf")
                        and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(kit.TRAINER)):
                    rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("SLURM_PROCID", "0"))
                    found[int(rank)] = (int(pid), variables)
            except OSError:
                continue
        return found

    def assert_newest_is_whole(self):
        newest = self.path("run/latest")
        inspected = subprocess.run([kit.TRAINER, "inspect", "--verify", newest], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, check=False)
        self.assertEqual(inspected.returncode, 0, inspected.stdout.decode())

    # Slurm itself sends the signal: with a limit of a minute and 50 s of warning it does so within seconds.
    def stops_requeues_and_finishes(self, launcher):
        self.settings()
        job = self.submit(launcher, "--time=1", "--signal=B:USR1@50")
        self.wait_for_steps()
        _, variables = self.ranks()[0]
        self.assertAlmostEqual(int(variables["LOCKSTEP_JOB_END"]), time.time() + 60, delta=30)
        self.wait_for(lambda: "stopped on request" in self.text(), "the end of the first run")
        self.wait_for(lambda: self.cluster.job(job).get("Restarts") == "1"
                      and self.cluster.job(job).get("JobState") == "PENDING", "the requeued job")
        saved = kit.checkpoints(self.path("run"))[-1]
        step = int(saved[len("step-"):-len(".h5")])
        self.settings(train__steps=step + 20)
        # Slurm would wait for two minutes, so that all of the first run is gone. KillWait and a little more will do.
        time.sleep(10)
        self.cluster.output("scontrol", "update", f"JobId={job}", "TimeLimit=30")

        def started():
            self.cluster.output("scontrol", "update", f"JobId={job}", "StartTime=now")
            time.sleep(1)
            return self.cluster.job(job).get("JobState") in ("RUNNING", "COMPLETED")

        self.wait_for(started, "the second run")
        self.wait_for_state(job, "COMPLETED")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "0:0")
        self.assertIn(f"step-{step:08}.h5", self.text().split("stopped on request")[1])
        self.assertEqual(kit.checkpoints(self.path("run"))[-1], f"step-{step + 20:08}.h5")
        steps = sorted(kit.per_step(self.path("run"), "loss"))
        self.assertEqual(steps, list(range(1, step + 21)))

    def cancelled(self, launcher):
        self.settings(checkpoint__every_steps=5)
        job = self.submit(launcher, "--time=5")
        self.wait_for_steps(12)
        self.cluster.output("scancel", job)
        self.wait_for_state(job, "CANCELLED")
        self.wait_for(lambda: not self.ranks(), "the end of all ranks", 30)
        self.assert_newest_is_whole()
        self.assertEqual(self.cluster.job(job)["Restarts"], "0")

    def killed_rank(self, launcher):
        self.settings(checkpoint__every_steps=5)
        job = self.submit(launcher, "--time=5")
        self.wait_for_steps(12)
        os.kill(self.ranks()[self.killed][0], signal.SIGKILL)
        self.wait_for_state(job, "FAILED")
        self.wait_for(lambda: not self.ranks(), "the end of all ranks", 30)
        self.assertEqual(self.cluster.job(job)["ExitCode"], "137:0")
        self.assertNotIn("the state is saved", self.text())
        self.assert_newest_is_whole()
        self.assertEqual(self.cluster.job(job)["Restarts"], "0")


class EndedJobs:
    """How jobs end on any number of nodes."""

    def test_mpirun_job_is_stopped_before_its_limit_requeued_and_finishes(self):
        self.stops_requeues_and_finishes("mpirun")

    def test_srun_job_is_stopped_before_its_limit_requeued_and_finishes(self):
        self.stops_requeues_and_finishes("srun")

    def test_cancelled_mpirun_job_leaves_no_rank_and_a_whole_checkpoint(self):
        self.cancelled("mpirun")

    def test_cancelled_srun_job_leaves_no_rank_and_a_whole_checkpoint(self):
        self.cancelled("srun")


class Slow(EndedJobs, OnSlurm):
    tasks = ("--ntasks=2",)

    def bound_ranks(self, launcher):
        if os.cpu_count() < 2:
            self.skipTest("one processor")
        self.settings()
        job = self.submit(launcher, "--time=5")
        self.wait_for_steps()
        masks = [os.sched_getaffinity(pid) for pid, _ in self.ranks().values()]
        self.assertEqual([len(mask) for mask in masks], [1, 1], masks)
        self.assertFalse(masks[0] & masks[1], masks)
        self.assertEqual(self.text().count("1 core usable"), 2)
        self.cluster.output("scancel", job)
        self.wait_for_state(job, "CANCELLED")

    def test_lockstep_run_takes_its_ranks_from_slurm_and_saves_on_its_signal(self):
        self.settings()
        batch = kit.write(self.path("job.sbatch"), f"""#!/bin/bash
exec {os.path.dirname(kit.TRAINER)}/lockstep run --mpirun {kit.MPIRUN} --config run.toml
""")
        job = self.cluster.output("sbatch", "--parsable", "--ntasks=2", "--cpus-per-task=1", "--time=5",
                                  f"--output={self.log}", f"--chdir={self.directory}", batch)
        self.wait_for_steps()
        if os.cpu_count() >= 2:
            masks = [os.sched_getaffinity(pid) for pid, _ in self.ranks().values()]
            self.assertEqual(([len(mask) for mask in masks], masks[0] & masks[1]), ([1, 1], set()))
        self.cluster.output("scancel", "--batch", "--signal=USR1", job)
        self.wait_for_state(job, "FAILED")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "75:0")
        self.assertIn("the state is saved", self.text())
        self.assert_newest_is_whole()
        self.wait_for(lambda: not self.ranks(), "the end of all ranks", 30)

    def test_mpirun_binds_each_rank_to_a_processor_of_its_own(self):
        self.bound_ranks("mpirun")

    def test_srun_binds_each_rank_to_a_processor_of_its_own(self):
        self.bound_ranks("srun")

    def test_mpirun_job_with_a_killed_rank_fails_and_is_not_requeued(self):
        self.killed_rank("mpirun")

    def test_srun_job_with_a_killed_rank_fails_and_is_not_requeued(self):
        self.killed_rank("srun")


class SlowNodes(EndedJobs, OnSlurm):
    tasks = ("--nodes=2", "--ntasks-per-node=2")
    killed = 3

    @classmethod
    def setUpClass(cls):
        cls.hosts = virtual_hosts.Hosts(2)
        cls.enterClassContext(cls.hosts)

    def wait_for_steps(self, count=3):
        super().wait_for_steps(count)
        self.assertEqual(len(self.ranks()), 4)
        self.assertIn("between 2 hosts with 2 ranks each", self.text())

    def test_the_lines_of_check_run_as_printed_and_give_each_rank_all_processors_of_its_node(self):
        if os.cpu_count() < 2:
            self.skipTest("one processor")
        self.settings(device__threads=1)
        checked = self.run_batch("srun --mpi=pmix --ntasks=2 --nodes=2 --cpu-bind=none $TRAINER check --config run.toml")
        self.assertRegex(checked, r"on host\[0-1\], 1 rank computes? on 1 of \d+ cores; what to do: ")
        lines = re.findall(r"'((?:mpirun|srun) [^']*)'", checked)
        self.assertEqual(len(lines), 2, checked)
        everywhere = sorted(f"host{i} {sorted(os.sched_getaffinity(0))}" for i in (0, 1))
        show = "import os, socket; print(socket.gethostname(), sorted(os.sched_getaffinity(0)))"
        for line in lines:
            # Without the variables that let tests run more ranks than cores.
            ran = self.run_batch(f"unset ${{!OMPI_MCA_*}}; {line} {sys.executable} -c '{show}'")
            self.assertEqual(sorted(re.findall("^host.*$", ran, re.MULTILINE)), everywhere, f"{line}: {ran}")

    def run_batch(self, command):
        """The output of a job for twice as many ranks."""
        batch = kit.write(self.path("job.sbatch"), f"#!/bin/bash\n{command}\n")
        output = self.path("output")
        number = self.cluster.output("sbatch", "--parsable", "--wait", *self.tasks, "--cpus-per-task=1", "--time=5",
                                     f"--output={output}", f"--chdir={self.directory}", batch)
        self.wait_for_state(number, "COMPLETED", "FAILED")
        with open(output, encoding="utf-8") as file:
            return file.read()

    def test_mpirun_job_with_a_rank_killed_on_the_second_node_fails_and_is_not_requeued(self):
        self.killed_rank("mpirun")

    def test_srun_job_with_a_rank_killed_on_the_second_node_fails_and_is_not_requeued(self):
        self.killed_rank("srun")


class SlowProcessors(OnSlurm):
    """How the files bind ranks on a node of two sockets with four cores of two threads each, which is only described."""

    def setUp(self):
        kit.TestCase.setUp(self)
        self.cluster = Cluster(self.path("cluster"), processors="Sockets=2 CoresPerSocket=4 ThreadsPerCore=2")
        self.addCleanup(self.cluster.close)
        program = kit.write(self.path("program"), "#!/bin/sh\necho rank $SLURM_PROCID of $SLURM_CPU_BIND_LIST\n")
        os.chmod(program, 0o755)
        self.cluster.env.update(HWLOC_SYNTHETIC="Package:2 NUMANode:1 Core:4 PU:2", HWLOC_THISSYSTEM="1",
                                LD_PRELOAD=os.environ["LOCKSTEP_MANY_PROCESSORS"], TRAINER=program,
                                OMPI_MCA_hwloc_base_report_bindings="1")
        self.cluster.start()
        self.log = self.path("job.log")

    def processors(self, launcher, *options):
        """Those of each rank, as the launcher says."""
        self.tasks = options
        self.submit(launcher, "--wait", "--time=1", "--open-mode=truncate")
        if launcher == "srun":
            masks = re.search(r"^rank 0 of (\S+)$", self.text(), re.MULTILINE)
            self.assertTrue(masks, self.text())
            bits = [f"{int(mask, 16):b}"[::-1] for mask in masks[1].split(",")]
            return [[i for i, bit in enumerate(mask) if bit == "1"] for mask in bits]
        maps = dict(re.findall(r"MCW rank (\d+) bound to .*: (\[\S+\])$", self.text(), re.MULTILINE))
        return [[i for i, bit in enumerate(re.sub(r"[]/[]", "", maps[str(r)])) if bit == "B"] for r in range(len(maps))]

    def check(self, launcher):
        for tasks, each in ((2, 8), (8, 2), (8, 1), (4, 4)):  # a rank per NUMA node, per core, per thread, per two cores
            expected = [list(range(rank * each, (rank + 1) * each)) for rank in range(tasks)]
            found = self.processors(launcher, "--nodes=1", f"--ntasks-per-node={tasks}", f"--cpus-per-task={each}")
            self.assertEqual(found, expected, self.text())

    def test_mpirun_gives_each_rank_processors_next_to_each_other(self):
        self.check("mpirun")

    def test_srun_gives_each_rank_processors_next_to_each_other(self):
        self.check("srun")


if __name__ == "__main__":
    missing = [program for program in PROGRAMS if not find(program)]
    if missing or os.getuid() != 0:
        why = f"{', '.join(missing)} not installed (slurmctld slurmd slurm-client munge)" if missing else "needs root"
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
    kit.main()
