"""What the end-to-end tests share: small data sets, configurations, runs of the real program under the real mpirun.

ctest sets LOCKSTEP_TRAINER, LOCKSTEP_MPIRUN and the variables that Open MPI needs here.
"""

import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

import h5py
import numpy

sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
import tfrecord as records

TRAINER = os.environ["LOCKSTEP_TRAINER"]
MPIRUN = os.environ["LOCKSTEP_MPIRUN"]
DIGITS = os.path.join(os.path.dirname(__file__), "../../data/digits/train.tfrecord")

OK, INTERNAL, CONFIG, DATA, NUMERICS, CHECKPOINT, STALLED, STOPPED = 0, 1, 2, 3, 4, 5, 6, 75


# ---- images and records


def png(pixels):
    """A PNG of an array [H,W,3] of uint8."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter 0 on every row
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def images(count, side=16, seed=0):
    """`count` (PNG, label) pairs of ten classes; the label shows in the picture."""
    random = numpy.random.default_rng(seed)
    samples = []
    for i in range(count):
        pixels = random.integers(0, 128, (side, side, 3), dtype=numpy.uint8)
        pixels[:, :, i % 3] += numpy.uint8(12 * (i % 10))
        samples.append((png(pixels), i % 10))
    return samples


def example(encoded, label):
    """A serialized tf.train.Example with ImageNet's keys."""
    return records.example({"image/encoded": records.blobs(encoded), "image/class/label": records.int64s(label)})


def sparse_example(label, ids, values, keys=("label", "ids", "values")):
    """A serialized tf.train.Example of a label, ids and values under these names."""
    return records.example(dict(zip(keys, (records.int64s(label), records.int64s(*ids), records.floats(*values)))))


def tfrecord(samples):
    return frame(example(encoded, label) for encoded, label in samples)


def frame(bodies):
    return b"".join(map(records.record, bodies))


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return path


def write_safetensors(path, arrays):
    """As the format describes it; counters are int64, everything else float32."""
    header, end = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "I64" if array.dtype == numpy.int64 else "F32", "shape": list(array.shape),
                        "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    write(path, b"".join([struct.pack("<Q", len(text)), text, *(array.tobytes() for array in arrays.values())]))


# ---- configurations


def toml(config):
    def value(v):
        if isinstance(v, bool):
            return str(v).lower()
        return json.dumps(v)

    return "\n".join(f"[{section}]\n" + "".join(f"{k} = {value(v)}\n" for k, v in keys.items())
                     for section, keys in config.items())


def merged(config, changes):
    """A copy of {section: {key: value}} with changes {"section.key": value}; None removes a key."""
    result = {section: dict(keys) for section, keys in config.items()}
    for name, value in changes.items():
        section, key = name.split(".")
        if value is None:
            result.setdefault(section, {}).pop(key, None)
        else:
            result.setdefault(section, {})[key] = value
    return result


# The network without batch normalization, small enough for steps of a few milliseconds.
SMALL = {
    "model": {"name": "cifar10_cnn", "classes": 10, "image_size": 16, "aux_weight": 0.0, "dropout": 0.0},
    "data": {"format": "tfrecord", "train": "train.tfrecord", "augment": "none"},
    "train": {"batch_size": 12, "steps": 20, "epochs": 1e6, "label_smoothing": 0.1},
    "optimizer": {"name": "sgd", "lr": 0.01, "weight_decay": 1e-4},
    "schedule": {"name": "constant"},
    "ema": {"decay": 0.0},
    "checkpoint": {"directory": "run", "every_seconds": 0},
    "log": {"every_steps": 1},
    "watchdog": {"warn_seconds": 30, "abort_seconds": 60},
}

# The network with everything that a checkpoint must hold: batch normalization, dropout, averages, two slots.
LARGE = merged(SMALL, {
    "model.name": "inception_v3", "model.image_size": 75, "model.dropout": 0.2, "model.init": "fan_in",
    "data.train": DIGITS, "train.batch_size": 2, "optimizer.name": "adamw", "optimizer.lr": 1e-4,
    "optimizer.epsilon": 1e-8, "ema.decay": 0.9, "schedule.name": "exponential", "schedule.decay_epochs": 0.01,
})


# ---- runs


class Result:
    def __init__(self, code, output, seconds):
        self.code, self.output, self.seconds = code, output, seconds

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.output}"

    def count(self, text):
        return self.output.count(text)

    def errors(self):
        return [line for line in self.output.splitlines() if "error: " in line]

    def warnings(self):
        return [line for line in self.output.splitlines() if "warning: " in line]


def environment(changes=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "SLURM_"))}
    env["LOCKSTEP_CACHE"] = CACHE
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


CACHE = tempfile.mkdtemp(prefix="lockstep_cache_")


class Job:
    """A started command and all its processes, as one group that can be killed at once."""

    def __init__(self, command, cwd, env=None):
        # Not a pipe: nobody reads while the job runs. Appending: the job shares the place at which this process reads.
        self.log = tempfile.TemporaryFile()
        self.mark = f"KIT_JOB={os.getpid()}.{time.monotonic_ns()}"
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, start_new_session=True,
                                        env=environment(dict([self.mark.split("=")], **(env or {}))))

    def output(self):
        # The job writes at the offset that both share, so nothing here may move it.
        file = self.log.fileno()
        text = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
        # Open MPI 5.0 says so of the ranks of one host, and means nothing by it (docs/messages.md).
        return re.sub(r"(?m)^\[.*\] Unable to find reachable pairing between .*\n", "", text)

    def wait(self, timeout=120):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = "timeout"
        seconds = time.monotonic() - self.started
        self.kill()
        return Result(code, self.output(), seconds)

    def wait_for(self, condition, what, timeout=60):
        end = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                if condition():
                    return
                self.kill()
                raise AssertionError(f"{what}: not seen\n{self.output()}")
            time.sleep(0.01)

    def wait_for_output(self, text, timeout=60):
        self.wait_for(lambda: text in self.output(), repr(text), timeout)

    def ranks(self):
        """Process ids of the ranks, in the order of ranks."""
        found = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            pid = int(path.split("/")[2])
            try:
                with open(path, "rb") as file:
                    variables = file.read().decode(errors="replace").split("\0")
                if self.mark in variables and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(TRAINER):
                    rank = [v for v in variables if v.startswith("OMPI_COMM_WORLD_RANK=")]
                    found[int(rank[0].split("=")[1]) if rank else 0] = pid
            except OSError:
                continue
        return [found[rank] for rank in sorted(found)]

    def kill(self):
        """Ends whatever is left of the job. The ranks first: mpirun must not have a chance to tidy up."""
        for pid in self.ranks():
            _signal(pid, signal.SIGKILL)
        if self.process.poll() is None:
            _signal(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        self.log.close()


class Terminal:
    """A command that owns a terminal of its own, and what it prints there."""

    def __init__(self, command, cwd, env=None):
        self.pid, self.keys = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(command[0], command, environment(env))
        self.text = b""

    def read(self, seconds):
        if select.select([self.keys], [], [], seconds)[0]:
            try:
                self.text += os.read(self.keys, 65536)
            except OSError:  # the other end is closed
                time.sleep(0.05)

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text.encode() not in self.text:
            if time.monotonic() > end:
                raise AssertionError(f"{text!r}: not seen\n{self.text.decode(errors='replace')}")
            self.read(0.1)

    def press(self, key):
        os.write(self.keys, key)

    def wait(self, seconds=60):
        """The exit code, negative for a signal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.read(0)
                return os.waitstatus_to_exitcode(status)
            self.read(0.1)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"it does not end\n{self.text.decode(errors='replace')}")


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class TestCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="lockstep_")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def records(self, count, name="train.tfrecord", side=16, seed=0):
        return write(self.path(name), tfrecord(images(count, side, seed)))

    def config(self, changes=None, base=None, name="run.toml"):
        """Writes a configuration file and returns its path."""
        return write(self.path(name), toml(merged(base or SMALL, changes or {})))

    def start(self, ranks, *arguments, flags=(), wrapper=(), env=None, cwd=None):
        """Starts the trainer; ranks = 0: without mpirun."""
        launcher = [MPIRUN, *flags, "-np", str(ranks)] if ranks > 0 else []
        return self.start_command([*launcher, *wrapper, TRAINER, *arguments], cwd, env)

    def start_command(self, command, cwd=None, env=None):
        job = Job(command, cwd or self.directory, env)
        self.addCleanup(job.close)
        return job

    def run_job(self, ranks, *arguments, timeout=120, **more):
        return self.start(ranks, *arguments, **more).wait(timeout)

    def last_step(self, job):
        """The last step that the job has logged, 0 before the first."""
        lines = [line for line in job.output().splitlines() if ": step " in line and ", loss = " in line]
        return int(lines[-1].split(": step ")[1].split(",")[0]) if lines else 0

    def wait_for_steps(self, job, count):
        """So many more steps are logged."""
        end = self.last_step(job) + count
        job.wait_for(lambda: self.last_step(job) >= end, f"step {end}")

    def of_rank_1(self, script):
        """A wrapper of the program that runs a shell script in place of it on rank 1, with its command line as "$@"."""
        wrapper = write(self.path("wrapper.sh"), f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
{script}
""")
        os.chmod(wrapper, 0o755)
        return [wrapper]

    def disk_fault(self, fault):
        """A wrapper under which rank 0's fsync suffers what strace's inject=fsync: says, and nothing else does."""
        if subprocess.run(["strace", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("strace cannot trace here")
        script = write(self.path("wrapper.sh"), f"""#!/bin/sh
[ "${{OMPI_COMM_WORLD_RANK:-0}}" = 0 ] || exec "$@"
exec strace -f --seccomp-bpf -qq -o /dev/null -e trace=fsync -e inject=fsync:{fault} "$@"
""")
        os.chmod(script, 0o755)
        return [script]

    def faulty(self, rank, call="none", action="none", *, trigger=None, mark=None, clock=None,
               pace=None):
        """Environment in which this rank suffers what fault_shim.cc describes."""
        shim = os.environ["LOCKSTEP_FAULT_SHIM"]
        if not shim:
            self.skipTest("this build has a sanitizer, which must be loaded first")
        return {"LD_PRELOAD": shim, "FAULT_RANK": str(rank), "FAULT_CALL": call, "FAULT_ACTION": action,
                "FAULT_TRIGGER": trigger, "FAULT_MARK": mark, "FAULT_CLOCK": clock, "FAULT_PACE": pace}

    def train(self, ranks, config, overrides=None, code=OK, **more):
        """Runs to the end, with options --section.key value, and checks the exit code."""
        options = [part for k, v in (overrides or {}).items() for part in ("--" + k, str(v))]
        result = self.run_job(ranks, "--config", config, *options, **more)
        self.assertEqual(result.code, code, str(result))
        return result

    def assert_once(self, result, text):
        self.assertEqual(result.count(text), 1, f"{text!r} must be printed once: {result}")

    def assert_one_error(self, result, code, *texts):
        """The job ended with that code and said why in one line that holds all the texts."""
        self.assertEqual(result.code, code, str(result))
        errors = result.errors()
        self.assertEqual(len(errors), 1, f"one error line expected: {result}")
        for text in texts:
            self.assertIn(text, errors[0])


# ---- what runs leave behind


def checkpoints(directory):
    return sorted(os.path.basename(p) for p in glob.glob(os.path.join(directory, "step-*.h5")))


def datasets(path):
    """{name: array} of everything in an HDF5 file."""
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def metrics(directory, kind=None):
    """Rows of metrics.jsonl; every line must be a whole JSON object."""
    with open(os.path.join(directory, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    return [row for row in rows if kind in (None, row["kind"])]


def per_step(directory, field):
    """{step: value} of the training rows; no step may come twice."""
    rows = metrics(directory, "train")
    values = {row["step"]: row[field] for row in rows}
    if len(values) != len(rows):
        raise AssertionError(f"{directory}: steps come twice in {[row['step'] for row in rows]}")
    return values


def main():
    """Runs the cases of the calling script: with the argument "fast" those of all classes but the ones called Slow...,
    otherwise whatever unittest's own arguments say (names of classes, of cases). Exits with 77, which ctest shows as
    skipped, if no case could run."""
    if sys.argv[1:] == ["fast"]:
        sys.argv[1:] = [name for name, item in vars(sys.modules["__main__"]).items()
                        if isinstance(item, type) and issubclass(item, TestCase) and not name.startswith("Slow")]
    program = unittest.main(exit=False, verbosity=2)
    shutil.rmtree(CACHE, ignore_errors=True)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun <= len(result.skipped) else 0)
