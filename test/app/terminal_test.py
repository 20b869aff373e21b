"""What a person sees in a terminal: a bar instead of lines, and a little color."""

import fcntl
import os
import pty
import struct
import subprocess
import termios

import kit

GREEN, YELLOW, RED, PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
COLOR = "\x1b[3"


class Terminal(kit.TestCase):
    def seen(self, *arguments, env=None, code=kit.OK, flags=(), wrapper=(), errors_to=None):
        """What mpirun's own terminal of 140 columns shows of a run; its standard error may go to a file instead."""
        command = [kit.MPIRUN, *flags, "-np", "2", *wrapper, kit.TRAINER, *arguments]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.directory)
            if errors_to:
                os.dup2(os.open(errors_to, os.O_WRONLY | os.O_CREAT, 0o600), 2)
            os.execve(command[0], command, kit.environment({"TERM": "xterm", "NO_COLOR": None, **(env or {})}))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 140, 0, 0))
        output = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            output += piece
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), code, output)
        return output.decode(errors="replace")

    def warned(self, name="run"):
        """The arguments of a run that warns: its metrics cannot be written."""
        if not os.path.exists(self.path("train.tfrecord")):
            self.records(24)
        os.makedirs(self.path(name, "metrics.jsonl"))
        return "--config", self.config({"train.steps": 8, "train.batch_size": 6, "checkpoint.directory": name})

    def test_a_terminal_shows_a_bar(self):
        self.records(24)
        config = self.config({"train.steps": 8, "train.batch_size": 6})
        output = self.seen("--config", config).replace(GREEN, "").replace(PLAIN, "")
        self.assertRegex(output, r"step 4/8 \[=+> +\] [\d.]+ examples/sec loss [\d.]+ ETA 0:00:00 \[data \d+ compute")
        self.assertNotIn(": step 4, loss", output)
        lines = self.seen("--config", config, env={"LOCKSTEP_LOG_PROGRESS": "lines",
                                                   "LOCKSTEP_CHECKPOINT_DIRECTORY": "again"})
        self.assertIn(": step 4, loss", lines)
        self.assertNotIn("\x1b[", lines)

    def test_a_terminal_shows_a_little_color(self):
        output = self.seen(*self.warned())
        self.assertIn(f"[{GREEN}=", output)
        self.assertRegex(output, r"rank 0@\S+: \x1b\[33mwarning:\x1b\[0m .*metrics.jsonl")
        self.assertEqual(output.count(COLOR), output.count(PLAIN))
        error = self.seen("--config", "nowhere.toml", code=kit.CONFIG)
        self.assertIn(f"{RED}error:{PLAIN} ", error)

    def test_no_color_has_a_bar_without_color(self):
        output = self.seen(*self.warned(), env={"NO_COLOR": "1"})
        self.assertRegex(output, r"step 4/8 \[=+> +\]")
        self.assertRegex(output, r"rank 0@\S+: warning: .*metrics.jsonl")
        self.assertNotIn(COLOR, output)

    def test_a_dumb_terminal_gets_lines_and_no_escape_sequence(self):
        output = self.seen(*self.warned(), env={"TERM": "dumb"})
        self.assertIn(": step 4, loss", output)
        self.assertRegex(output, r"rank 0@\S+: warning: .*metrics.jsonl")
        self.assertNotIn("\x1b", output)

    def test_errors_that_go_elsewhere_are_plain_beside_a_colored_bar(self):
        output = self.seen(*self.warned(), errors_to=self.path("errors"))
        self.assertIn(f"[{GREEN}=", output)
        with open(self.path("errors"), encoding="utf-8") as file:
            errors = file.read()
        self.assertIn(": warning: ", errors)
        self.assertNotIn("\x1b", errors)

    def test_a_pipe_gets_plain_lines_whatever_stands_between_mpirun_and_the_rank(self):
        script = kit.write(self.path("wrapper.sh"), '#!/bin/sh\n"$@"\nexit $?\n')  # stays, as a profiler does
        os.chmod(script, 0o755)
        for name, wrapper in (("alone", ()), ("wrapped", (script,))):
            with self.subTest(name):
                command = [kit.MPIRUN, "-np", "2", *wrapper, kit.TRAINER, *self.warned(name)]
                result = subprocess.run(command, cwd=self.directory, env=kit.environment({"TERM": "xterm", "NO_COLOR": None}),
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
                self.assertIn(": step 4, loss", result.stdout)
                self.assertIn(": warning: ", result.stdout)
                self.assertNotIn("\x1b", result.stdout)

    def test_the_key_decides_against_the_terminal(self):
        lines = self.seen(*self.warned(), "--log.progress", "lines", env={"NO_COLOR": "1"}, flags=("--tag-output",))
        self.assertIn(": step 4, loss", lines)
        self.assertNotIn("\x1b", lines)
        command = [kit.MPIRUN, "-np", "2", kit.TRAINER, *self.warned("piped"), "--log.progress", "bar"]
        piped = subprocess.run(command, cwd=self.directory, env=kit.environment({"TERM": "dumb"}), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, check=True).stdout
        self.assertRegex(piped, r"step 4/8 \[=+> +\]")
        self.assertNotIn(": step 4, loss", piped)


if __name__ == "__main__":
    kit.main()
