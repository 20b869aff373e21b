"""How a job is stopped: signals at the start, in training, from the keyboard and from a terminal that ends."""

import os
import signal
import subprocess
import time

import kit

RUN = os.path.join(os.path.dirname(kit.TRAINER), "lockstep-run")
LONG = {"train.steps": 1000000, "log.every_steps": 1, "checkpoint.every_seconds": 0}


def has_child(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return bool(file.read())
    except OSError:
        return False


def holds(pid, number):
    """Whether this process has the signal blocked, to take it in a thread of its own."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return False
    return bool(int(lines["SigBlk"], 16) >> (number - 1) & 1)


class Signals(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(30)

    def assert_resumable(self, result):
        """It ended with 75, and either nothing was trained or the state is saved."""
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assertEqual(result.errors(), [], str(result))
        saved = "the state is saved" in result.output and kit.checkpoints(self.path("run"))
        self.assertTrue(saved or "nothing was trained" in result.output, str(result))

    def start_held(self, ranks, **more):
        """A job whose ranks have just started to hold signals back, long before MPI has started."""
        job = self.start(ranks, "--config", self.config(LONG), **more)
        job.wait_for(lambda: len(job.ranks()) == max(ranks, 1)
                     and all(holds(pid, signal.SIGUSR1) for pid in job.ranks()), "signals are held")
        return job

    def test_a_signal_while_mpi_starts_is_not_lost(self):
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number.name):
                job = self.start_held(0)
                # Not by name: a child that is about to become MPI's daemon looks like a rank for a moment.
                job.process.send_signal(number)
                self.assert_resumable(job.wait())

    def test_a_signal_to_mpirun_while_mpi_starts_stops_all_ranks(self):
        job = self.start_held(2)
        job.process.send_signal(signal.SIGUSR1)
        self.assert_resumable(job.wait())

    def test_a_signal_to_one_rank_while_mpi_starts_stops_all_ranks(self):
        job = self.start_held(2)
        os.kill(job.ranks()[1], signal.SIGTERM)
        self.assert_resumable(job.wait())

    def test_a_signal_before_the_first_step_trains_nothing(self):
        job = self.start(2, "--config", self.config(LONG), env=self.faulty(0, "open:train.tfrecord", "delay:2"))
        job.wait_for_output("scanning data.train")
        job.process.send_signal(signal.SIGUSR1)
        result = job.wait()
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assert_once(result, "nothing was trained")
        self.assertEqual(result.errors(), [], str(result))
        self.assertFalse(os.path.exists(self.path("run/run.lock")))

    def test_the_end_of_the_terminal_saves(self):
        job = self.start(0, "--config", self.config(LONG))
        job.wait_for_output("step 3,")
        os.kill(job.ranks()[0], signal.SIGHUP)
        self.assert_resumable(job.wait())

    def test_the_end_of_the_terminal_is_ignored_under_nohup_even_if_a_library_handles_it(self):
        # Without OMP_WAIT_POLICY, the program executes itself again.
        job = self.start_command(["nohup", kit.TRAINER, "--config", self.config(LONG)],
                                 env={**self.faulty(0, "hangup"), "OMP_WAIT_POLICY": None})
        job.wait_for(lambda: job.output().count(": step ") > 2, "steps")
        os.kill(job.ranks()[0], signal.SIGHUP)
        steps = job.output().count(": step ")
        job.wait_for(lambda: job.output().count(": step ") > steps + 2, "it goes on")
        os.kill(job.ranks()[0], signal.SIGTERM)
        self.assert_resumable(job.wait())

    def test_evaluation_and_check_still_end_at_once(self):
        config = self.config({**LONG, "data.validation": "train.tfrecord"})
        job = self.start(0, "check", "--config", config, env=self.faulty(0, "open:train.tfrecord", "hold"))
        job.wait_for_output("scanning data.train")
        os.kill(job.ranks()[0], signal.SIGTERM)
        self.assertEqual(job.wait().code, -signal.SIGTERM)

    # The shell of `srun --pty`: Open MPI takes the process for one of srun's tasks.
    def test_a_single_process_in_a_slurm_step_runs_on_its_own(self):
        step = {"SLURM_STEP_ID": "0", "SLURM_JOBID": "77", "SLURM_JOB_ID": "77", "SLURM_NODELIST": "node7",
                "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0"}
        result = self.run_job(0, "--config", self.config({"train.steps": 2}), env=step)
        self.assertEqual(result.code, kit.OK, str(result))
        result = self.run_job(0, "--config", self.config(), env={**step, "SLURM_STEP_NUM_TASKS": "2"})
        self.assert_one_error(result, kit.CONFIG, "SLURM_STEP_NUM_TASKS=2", "srun --mpi=pmix")
        result = self.run_job(0, "--config", self.config(),
                              env={**step, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"})
        self.assertEqual((result.code, result.errors()), (kit.CONFIG, []), "the first task says it")


class Keyboard(kit.TestCase):
    """mpirun under lockstep-run."""

    def setUp(self):
        super().setUp()
        self.records(30)

    def command(self, *options):
        return [RUN, kit.MPIRUN, "-np", "2", kit.TRAINER, "--config", self.config(LONG), "--log.progress", "lines",
                *options]

    def test_ctrl_c_saves_and_the_same_command_goes_on(self):
        terminal = kit.Terminal(self.command(), self.directory)
        terminal.wait_for("step 3,")
        terminal.press(b"\x03")
        self.assertEqual(terminal.wait(), kit.STOPPED, terminal.text.decode())
        self.assertIn(b"the state is saved", terminal.text)
        saved = kit.checkpoints(self.path("run"))
        self.assertEqual(len(saved), 1)
        step = int(saved[0][5:13])
        self.train(2, self.config(), {"train.steps": step + 1})
        self.assertEqual(kit.checkpoints(self.path("run")), [*saved, f"step-{step + 1:08}.h5"])

    def test_ctrl_c_at_once_ends_with_75_as_well(self):
        terminal = kit.Terminal(self.command(), self.directory)
        end = time.monotonic() + 30
        while not has_child(terminal.pid):  # by then lockstep-run takes the key itself
            self.assertLess(time.monotonic(), end)
        terminal.press(b"\x03")
        self.assertEqual(terminal.wait(), kit.STOPPED, terminal.text.decode())

    def test_the_end_of_the_terminal_saves(self):
        log = self.path("log")
        script = f'exec "$@" > {log} 2>&1'
        terminal = kit.Terminal(["/bin/sh", "-c", script, "sh", *self.command()], self.directory)
        end = time.monotonic() + 60
        while not (os.path.exists(log) and b"step 3," in open(log, "rb").read()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        os.close(terminal.keys)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]), kit.STOPPED)
        self.assertEqual(len(kit.checkpoints(self.path("run"))), 1)

    def test_sigterm_saves_and_so_does_the_death_of_the_starter(self):
        job = self.start_command(self.command())
        job.wait_for_output("step 3,")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().code, kit.STOPPED)
        job = self.start_command(self.command())
        job.wait_for_output("resuming at step")
        job.wait_for(lambda: job.output().count(": step ") > 2, "steps")
        ranks = job.ranks()
        job.process.kill()
        job.process.wait()
        end = time.monotonic() + 30
        while any(os.path.exists(f"/proc/{pid}") for pid in ranks):
            self.assertLess(time.monotonic(), end, job.output())
            time.sleep(0.05)
        self.assertIn("the state is saved", job.output())

    def test_codes_and_words_of_the_command_are_passed_on(self):
        for command, code in ((["true"], 0), (["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -9 $$"], 137),
                              (["no-such-command"], 127)):
            self.assertEqual(subprocess.run([RUN, *command], check=False, stderr=subprocess.DEVNULL).returncode, code)
        self.assertEqual(subprocess.run([RUN], check=False, stderr=subprocess.DEVNULL).returncode, 2)
        text = subprocess.run([RUN, "cat"], input=b"from a pipe", stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(text, b"from a pipe")


if __name__ == "__main__":
    kit.main()
