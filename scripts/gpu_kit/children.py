"""Runs programs that may crash, hang or never stop printing, so that the caller always continues.

A program's output goes to a file and not to a pipe, so that the caller does not wait for a process that is left behind and
holds the other end. Each program has a session of its own, all of which is killed at the end, because mpirun gives its ranks
process groups of their own. If the caller is killed, the program ends, too.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time

POLL_SECONDS = 0.02
KILL_SECONDS = 20       # for a killed program to end: the driver first frees what it had
MOST_OUTPUT = 64 << 20  # bytes that one program may print
MOST_OF_ONE = 2 << 20   # of which the log keeps so many
MOST_LOG = 12 << 20
PR_SET_PDEATHSIG = 1     # <sys/prctl.h>
ERROR = re.compile(r"(^|: )error: ")
TELLING = re.compile(r"(?i:error|failed|terminate|traceback|nan\b)|CUDA|cuDNN|NCCL")
FAILURE = re.compile(r"FAILED:\n((?:.+\n)+)")  # an assertion, as Catch2 prints it
COLORS = re.compile(r"\x1b\[[0-9;]*m")


class Failed(Exception):
    """The measurement is wrong, or the program failed before it. `output` is what the program had printed until then."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


class Skipped(Exception):
    """Nothing was measured; the text says why."""


def members_of(session):
    """The living processes of a session."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = entry.read_text(errors="replace").rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if int(of) == session and state != "Z":
            found.append(int(entry.parent.name))
    return found


def kill_session(session):
    end = time.monotonic() + KILL_SECONDS
    while time.monotonic() < end:
        members = members_of(session)
        if not members:
            return
        for member in members:
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(POLL_SECONDS)


def end_session(process):
    """Kills what is left of the program's session. Returns its exit code, or None if even SIGKILL does not end it, as for a process
    that waits inside the driver."""
    kill_session(process.pid)
    try:
        return process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def die_with_parent():
    """Called in the child before its program starts."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def has_ended(process):
    """Does not reap the process, so that its session number is not reused yet."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class Children:
    def __init__(self, out, directory, environment, on_output):
        """`on_output` gets the output of each program, also of one that failed."""
        self.log = out / "log.txt"
        self.output = out / "running.txt"  # of the program that runs; part of the log afterwards
        self.directory, self.environment, self.on_output = directory, environment, on_output
        self.process = None
        self.watchers = []  # programs that run beside others

    def start(self, command, output_path):
        with open(output_path, "wb") as output:
            try:
                return subprocess.Popen(command, env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output,
                                        stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent)
            except OSError as error:
                raise Failed(f"{command[0]} does not start: {error.strerror}") from error

    @contextlib.contextmanager
    def beside(self, command, output_path):
        """Runs the command during the block, if it starts at all."""
        try:
            watcher = self.start(command, output_path)
        except Failed:
            yield
            return
        self.watchers.append(watcher)
        try:
            yield
        finally:
            self.watchers.remove(watcher)
            end_session(watcher)

    def run(self, command, seconds, stop_at=None):
        """Returns the output of the command. Raises Failed, with the output, if it ends with another code than 0, or not within
        its seconds.
        `stop_at`: a pattern; when a line matches it, the program is killed, which then counts as success."""
        command = [str(part) for part in command]
        self.process = self.start(command, self.output)
        end = self.wait(seconds, stop_at)
        code = self.kill()
        text = COLORS.sub("", self.output.read_bytes()[:MOST_OUTPUT].decode(errors="replace"))
        self.write_log(command, text, end or f"ended with code {code}")
        self.on_output(text)
        if end == "seen" or (end is None and code == 0):
            return text
        reason = telling_lines(text) if end is None else last_lines(text)
        if end is None:
            end = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise Failed(f"{pathlib.Path(command[0]).name} {end}: {reason}", text)

    def wait(self, seconds, stop_at):
        """Returns why the program must be killed, or None if it has ended."""
        deadline = time.monotonic() + seconds
        pattern = re.compile(stop_at) if stop_at else None
        while not has_ended(self.process):
            if time.monotonic() > deadline:
                return f"had not ended after {seconds:.0f} s"
            if self.output.stat().st_size > MOST_OUTPUT:
                return f"printed more than {MOST_OUTPUT >> 20} MiB"
            if pattern and pattern.search(self.output.read_text(errors="replace")):
                return "seen"
            time.sleep(POLL_SECONDS)
        return None

    def kill(self):
        """Kills what is left of the program; its exit code, or None when there is none."""
        if not self.process:
            return None
        process, self.process = self.process, None
        return end_session(process)

    def kill_all(self):
        for watcher in self.watchers:
            kill_session(watcher.pid)
        self.kill()

    def write_log(self, command, text, end):
        room = MOST_LOG - (self.log.stat().st_size if self.log.exists() else 0)
        if len(text) > MOST_OF_ONE:
            text = text[:MOST_OF_ONE // 2] + "\n[...]\n" + text[-MOST_OF_ONE // 2:]
        entry = f"\n$ {' '.join(command)}\n{text}[{end}]\n".encode(errors="replace")
        with open(self.log, "ab") as log:
            log.write(entry[:max(0, room)])
        self.output.unlink(missing_ok=True)


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def shortened(lines):
    return " / ".join(lines)[:600] or "it printed nothing"


def last_lines(text):
    """How far a program came that had to be ended, after what it complained of."""
    lines = lines_of(text)
    return shortened([line for line in lines[:-3] if TELLING.search(line)][:2] + lines[-3:])


def telling_lines(text):
    """The first failed assertion of a test; else the trainer's errors; else the first and last lines that look like the reason;
    else the end of the output."""
    failures = FAILURE.findall(text)
    if failures:
        return shortened(lines_of(failures[0]) + ([f"{len(failures) - 1} more"] if len(failures) > 1 else []))
    lines = lines_of(text)
    telling = [line for line in lines if ERROR.search(line)] or [line for line in lines if TELLING.search(line)]
    return shortened(telling[:3] + telling[3:][-2:] if telling else lines[-3:])
