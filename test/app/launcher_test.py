"""`lockstep run`: mpirun's options, Ctrl-C in a real terminal at every moment of a run, and what it leaves behind."""

import glob
import os
import random
import re
import signal
import subprocess
import time

import kit

LOCKSTEP = os.path.join(os.path.dirname(kit.TRAINER), "lockstep")
LONG = {"train.steps": 1000000, "checkpoint.every_seconds": 0}
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": None, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": None}


class LauncherCase(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(30)
        self.mark = f"LAUNCHER_TEST={os.getpid()}.{time.monotonic_ns()}"

    def command(self, *arguments, ranks=2):
        return [LOCKSTEP, "run", "-np", str(ranks), "--mpirun", kit.MPIRUN, "--", *arguments]

    def environment(self, **more):
        return {**ROOT, **dict([self.mark.split("=")]), **more}

    def terminal(self, changes=None, progress="lines", **env):
        config = self.config({**LONG, **(changes or {}), "log.progress": progress})
        return kit.Terminal(self.command("--config", config), self.directory, self.environment(TERM="xterm", **env))

    def left(self):
        """The processes of the job that live."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    if self.mark.encode() in file.read().split(b"\0"):
                        found.append(int(path.split("/")[2]))
            except OSError:
                continue
        return found

    def assert_nothing_is_left(self):
        end = time.monotonic() + 10  # the trainer's own watch over mpirun ends by itself
        while self.left():
            self.assertLess(time.monotonic(), end, f"{self.left()} are left")
            time.sleep(0.05)

    def assert_stopped(self, terminal, run="run"):
        """Ctrl-C ends it with 75 and a whole checkpoint of the last step, or before the first step without one."""
        terminal.press(b"\x03")
        code, text = terminal.wait(), terminal.text.decode(errors="replace")
        if code == kit.OK:  # the key came after the last step
            self.assertIn("finished at step", text)
        else:
            self.assertEqual(code, kit.STOPPED, text)
        self.assertNotIn("Primary job", text)
        self.assertNotIn("error: ", text)
        self.assert_nothing_is_left()
        said = re.search(r"(?:stopped on request|finished) at step (\d+): the state is saved", text)
        if not said:
            self.assertIn("nothing was trained", text)
            return text
        step = int(said[1])
        steps = [int(number) for number in re.findall(r"step (\d+)(?:, loss|/\d+ \[)", text)]
        self.assertEqual(step, steps[-1], text)
        newest = self.path(run, f"step-{step:08}.h5")
        self.assertEqual(os.path.realpath(self.path(run, "latest")), newest)
        subprocess.run([kit.TRAINER, "inspect", "--verify", newest], check=True, stdout=subprocess.DEVNULL)
        return text


class Launcher(LauncherCase):
    def test_ctrl_c_below_a_progress_bar_saves_with_75_and_one_line_says_so(self):
        terminal = self.terminal(progress="auto")
        terminal.wait_for("step 3/1000000 ")
        text = self.assert_stopped(terminal)
        self.assertEqual(text.count("lockstep: "), 1, text)
        self.assertRegex(text, rf"^\+ .*{kit.MPIRUN} -np 2 .*trainer --config ")

    def test_a_second_ctrl_c_ends_the_job_at_once(self):
        terminal = self.terminal(**self.faulty(0, "fsync:step-", "hold"))
        terminal.wait_for("step 3,")
        terminal.press(b"\x03")
        terminal.wait_for("asked to save and stop")
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            terminal.read(0.1)
        terminal.press(b"\x03")
        self.assertEqual(terminal.wait(), 128 + signal.SIGINT, terminal.text.decode())
        self.assertIn(b"ends at once, without a save", terminal.text)
        self.assert_nothing_is_left()

    def test_the_exit_code_is_that_of_the_job_and_mpirun_adds_nothing(self):
        result = self.start_command(self.command("--config", "nowhere.toml"), env=self.environment()).wait()
        self.assert_one_error(result, kit.CONFIG, "nowhere.toml")
        self.assertEqual(len(result.output.splitlines()), 2, "the command and the error")
        result = self.start_command(self.command("--help", ranks=2)[:6] + ["--hostfile", os.devnull, "--help"],
                                    env=self.environment()).wait()
        self.assertNotEqual(result.code, 0, str(result))  # mpirun's own: 1, and from version 5 on 213
        self.assertIn(f"lockstep: exit code {result.code}: if no line above says why, OMPI_MCA_orte_execute_quiet=0 makes",
                      result.output)
        killed = self.start_command(self.command("--config", self.config(LONG)), env=self.environment())
        killed.wait_for_output("step 3,")
        os.kill(killed.ranks()[1], signal.SIGKILL)
        result = killed.wait()
        self.assertEqual(result.code, 137, str(result))
        self.assertIn("lockstep: exit code 137: a process was killed by SIGKILL", result.output)
        self.assert_nothing_is_left()

    def test_the_epilogue_of_open_mpi_5_is_left_out(self):
        """With a program that prints what its mpirun has printed."""
        rule = "-" * 74
        text = f"""{rule}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-14653@1,1]
   Exit code:    $CODE
{rule}"""
        script = f"#!/bin/sh\necho 'rank 1: stopped' >&2\ncat >&2 <<END\n{text}\nEND\nexit $CODE\n"
        for name in ("mpirun", "prterun"):
            os.chmod(kit.write(self.path("bin", name), script.encode()), 0o755)
        for code, lines in ((kit.STOPPED, []), (1, text.replace("$CODE", "1").splitlines())):
            result = self.start_command([LOCKSTEP, "run", "-np", "2", "--mpirun", self.path("bin/mpirun"), "x"],
                                        env=self.environment(CODE=str(code))).wait()
            self.assertEqual(result.code, code, str(result))
            self.assertEqual(result.output.splitlines()[1:2 + len(lines)], ["rank 1: stopped", *lines])

    def test_more_ranks_than_cores_run_and_print_only_prints(self):
        cores = len(os.sched_getaffinity(0))
        printed = subprocess.run([*self.command("-x", ranks=cores + 1)[:6], "--print", "a b"], stdout=subprocess.PIPE,
                                 text=True, check=True, env=kit.environment(ROOT)).stdout
        self.assertIn(" --oversubscribe --bind-to none ", printed)
        self.assertTrue(printed.endswith("trainer 'a b'\n"), printed)
        for arguments, code, text in ((["--version"], kit.OK, "lockstep (Lockstep) "),
                                      (["run", "--hostfile", self.directory, "x"], kit.CONFIG, "cannot be read"),
                                      (["runs"], kit.CONFIG, "did you mean run?")):
            result = self.start_command([LOCKSTEP, *arguments]).wait()
            self.assertEqual((result.code, text in result.output), (code, True), str(result))
        self.assertEqual(os.geteuid() == 0, printed.startswith("OMPI_ALLOW_RUN_AS_ROOT=1 "))


class SlowMoments(LauncherCase):
    # (the text that is waited for, the longest further delay in seconds)
    MOMENTS = [("+ ", 0.0), ("+ ", 0.5), ("+ ", 1.0), ("Lockstep ", 0.0), ("rank 0@", 0.1), ("scanning data.train", 0.1),
               ("compiling", 0.1), (": step 1,", 0.0), (": step 2,", 0.1), (": step 3,", 0.3), (": step 4,", 0.02),
               (": step 4,", 0.1), ("evaluation at step 4", 0.0), ("evaluation at step 4", 0.2), (": step 8,", 0.02),
               ("checkpoint of step 4", 0.0), ("checkpoint of step 8", 0.1), (": step 39,", 0.02), (": step 40,", 0.05),
               ("evaluation at step 40", 0.2), ("finished at step", 0.0)]

    def test_ctrl_c_at_every_moment_of_a_run(self):
        self.records(600, "validation.tfrecord", seed=1)
        chosen = random.Random(16)
        config = {"train.steps": 40, "log.every_steps": 1, "data.validation": "validation.tfrecord", "eval.every_steps": 4,
                  "checkpoint.every_steps": 4}
        for number, (text, longest) in enumerate(self.MOMENTS):
            with self.subTest(number=number, after=text):
                terminal = self.terminal({**config, "checkpoint.directory": f"run{number}"},
                                         **self.faulty(0, pace="2"))
                terminal.wait_for(text)
                end = time.monotonic() + chosen.uniform(0, longest)
                while time.monotonic() < end:
                    terminal.read(0.005)
                self.assert_stopped(terminal, f"run{number}")

    def test_ctrl_c_at_once_trains_nothing(self):
        terminal = self.terminal()
        terminal.wait_for("+ ")
        self.assertIn("nothing was trained", self.assert_stopped(terminal))

    def test_the_end_of_the_terminal_and_signals_save(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number.name):
                job = self.start_command(self.command("--config", self.config(LONG)), env=self.environment())
                job.wait_for(lambda: job.output().count(": step ") > 2, "steps")
                job.process.send_signal(number)
                result = job.wait()
                self.assertEqual(result.code, kit.STOPPED, str(result))
                self.assert_nothing_is_left()
        terminal = self.terminal()
        terminal.wait_for("resuming at step")
        os.close(terminal.keys)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]), kit.STOPPED)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    kit.main()
