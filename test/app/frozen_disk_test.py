"""A file system that stops answering under the run's directory: training goes on, and every end comes within its limit.

A small ext4 image is mounted by way of a loop device and frozen (fsfreeze), so that every call that would change it
waits, uninterruptibly, until the thaw. Needs root. A process that touches the mount meanwhile cannot be killed: any program that
freezes here also has a thread that thaws after a while, come what may, and nothing looks at the mount before that.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import kit

LIMIT = 4  # seconds that a save, the start and a step may take
GRACE = 20  # seconds beyond a limit, on a busy machine
LONGEST_FREEZE = 90

STEPS = {
    "train.steps": 1_000_000, "log.every_steps": 1, "checkpoint.directory": "disk/run",
    "watchdog.warn_seconds": 2, "watchdog.abort_seconds": LIMIT,
}


def command(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False).returncode == 0


class Case(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.disk = self.path("disk")
        self.image = self.path("disk.img")
        os.mkdir(self.disk)
        made = (command("truncate", "-s", "256M", self.image) and command("mkfs.ext4", "-q", "-F", self.image)
                and command("mount", "-o", "loop", self.image, self.disk))
        if not made:
            self.skipTest("no right to mount an ext4 image by way of a loop device")
        self.addCleanup(self.unmount)
        self.records(60)

    def unmount(self):
        command("fsfreeze", "-u", self.disk)
        for _ in range(100):  # the processes of a job that was ended end now
            if command("umount", self.disk):
                return
            time.sleep(0.1)
        self.fail(f"{self.disk} is still in use")

    @contextlib.contextmanager
    def frozen(self):
        if not command("fsfreeze", "-f", self.disk):
            self.skipTest("the file system cannot be frozen here")
        timer = threading.Timer(LONGEST_FREEZE, command, ("fsfreeze", "-u", self.disk))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            command("fsfreeze", "-u", self.disk)

    def ends(self, job, limit=LIMIT):
        since = time.monotonic()
        try:
            code = job.process.wait(limit + GRACE)
        except subprocess.TimeoutExpired:
            self.fail(f"not within {limit + GRACE} s: {job.output()}")
        return kit.Result(code, job.output(), time.monotonic() - since)

    def assert_out_of_reach(self, result, code):
        """The job ended with that code, and rank 0 names the directory; another rank may still say whom it waited for,
        since mpirun takes two seconds to end ranks beside one that cannot be killed."""
        self.assertEqual(result.code, code, str(result))
        errors = [line for line in result.errors() if "rank 1@" not in line]
        self.assertEqual(len(errors), 1, str(result))
        self.assertIn("disk/run", errors[0], str(result))
        self.assertNotIn("the state is saved", result.output)

    def assert_whole(self, steps=None):
        """After the thaw: rows without a gap, events, and checkpoints that can be read."""
        run = os.path.join(self.disk, "run")
        logged = sorted(kit.per_step(run, "loss"))
        self.assertEqual(logged, list(range(1, (steps or logged[-1]) + 1)))
        events = os.listdir(os.path.join(run, "tensorboard/train"))
        self.assertEqual(len(events), 1)
        with open(os.path.join(run, "tensorboard/train", events[0]), "rb") as file:
            self.assertEqual(file.read().count(b"\n\x04loss"), len(logged))
        for name in kit.checkpoints(run):
            self.assertTrue(kit.datasets(os.path.join(run, name)))
        return run


class Steps(Case):
    def test_steps_go_on_while_the_disk_does_not_answer_and_nothing_is_lost(self):
        config = self.config(dict(STEPS, **{"watchdog.save_abort_seconds": 60}))
        job = self.start(2, "--config", config)
        self.wait_for_steps(job, 5)
        with self.frozen():
            since = time.monotonic()
            job.wait_for(lambda: time.monotonic() > since + LIMIT + 6, "time beyond every limit of a step")
            self.wait_for_steps(job, 10)
            self.assertIn("disk/run: no answer from the disk for", job.output())
        job.wait_for_output("disk/run: the disk answers again after")
        os.kill(job.process.pid, signal.SIGUSR1)
        result = self.ends(job, 60)
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assertEqual(result.errors(), [])
        run = self.assert_whole(self.last_step(job))
        self.assertEqual(kit.checkpoints(run), [f"step-{self.last_step(job):08}.h5"])

    def test_a_stop_while_the_disk_does_not_answer_ends_within_the_limit_of_a_save(self):
        config = self.config(STEPS)
        job = self.start(2, "--config", config)
        self.wait_for_steps(job, 5)
        with self.frozen():
            os.kill(job.process.pid, signal.SIGUSR1)
            self.assert_out_of_reach(self.ends(job), kit.CHECKPOINT)


class SlowPhases(Case):
    def test_before_the_first_step_the_start_ends_within_its_limit_and_names_the_directory(self):
        config = self.config(STEPS)
        for ranks in (1, 2):
            with self.frozen():
                job = self.start(ranks, "--config", config)
                self.assert_out_of_reach(self.ends(job, 2 * LIMIT), kit.STALLED)
            job.close()

    def test_a_start_that_the_disk_holds_up_for_a_while_goes_on(self):
        config = self.config(dict(STEPS, **{"train.steps": 5, "watchdog.start_abort_seconds": 60}))
        with self.frozen():
            job = self.start(2, "--config", config)
            job.wait_for_output("waits for the files in")
        self.assertEqual(self.ends(job, 60).code, kit.OK, job.output())
        self.assert_whole(5)

    def test_a_save_in_flight_holds_up_no_step_and_is_published_after_the_thaw(self):
        config = self.config(dict(STEPS, **{"checkpoint.every_steps": 5, "watchdog.save_abort_seconds": 60}))
        job = self.start(2, "--config", config)
        job.wait_for_output("checkpoint of step 5:")
        with self.frozen():
            job.wait_for_output("the one before is still being written")
            self.wait_for_steps(job, 50)
        job.wait_for_output("were skipped while that of step")
        before = job.output().count("checkpoint of step ")
        job.wait_for(lambda: job.output().count("checkpoint of step ") > before, "a save after the thaw")
        os.kill(job.process.pid, signal.SIGUSR1)
        result = self.ends(job, 60)
        self.assertEqual(result.code, kit.STOPPED, str(result))
        run = self.assert_whole(self.last_step(job))
        self.assertIn(f"step-{self.last_step(job):08}.h5", kit.checkpoints(run))

    def test_an_evaluation_and_the_link_to_the_best_state_hold_up_no_step(self):
        self.records(30, "validation.tfrecord", seed=1)
        config = self.config(dict(STEPS, **{
            "data.validation": "validation.tfrecord", "eval.every_steps": 3, "checkpoint.keep_best": True,
            "checkpoint.every_steps": 3, "watchdog.save_abort_seconds": 60}))
        job = self.start(2, "--config", config)
        job.wait_for_output("evaluation at step 3 ")
        with self.frozen():
            since = time.monotonic()
            job.wait_for(lambda: time.monotonic() > since + LIMIT + 6, "time beyond every limit of a step")
            step = self.last_step(job)
            job.wait_for_output(f"evaluation at step {(step // 3 + 2) * 3} ")
            self.wait_for_steps(job, 10)
        os.kill(job.process.pid, signal.SIGUSR1)
        self.assertEqual(self.ends(job, 60).code, kit.STOPPED, job.output())
        run = self.assert_whole()
        evaluated = [row["step"] for row in kit.metrics(run, "eval")]
        self.assertEqual(evaluated, list(range(3, evaluated[-1] + 1, 3)))
        self.assertTrue(os.path.exists(os.path.join(run, "best")))

    def test_the_trace_and_histograms_hold_up_no_step(self):
        config = self.config(dict(STEPS, **{"log.trace_steps": 5, "log.histogram_steps": 4,
                                            "watchdog.save_abort_seconds": 60}))
        with contextlib.ExitStack() as stack:
            job = self.start(2, "--config", config)
            job.wait_for_output(": step 1,")
            stack.enter_context(self.frozen())
            self.wait_for_steps(job, 40)
        job.wait_for_output("trace of 5 steps")
        os.kill(job.process.pid, signal.SIGUSR1)
        self.assertEqual(self.ends(job, 60).code, kit.STOPPED, job.output())
        self.assertTrue(os.path.exists(os.path.join(self.assert_whole(), "trace.json")))

    def test_the_last_save_is_given_up_within_its_limit(self):
        config = self.config(dict(STEPS, **{"train.steps": 400}))
        for ranks in (1, 2):
            job = self.start(ranks, "--config", config)
            self.wait_for_steps(job, 5)
            with self.frozen():
                job.wait_for_output(": step 400,")
                self.assert_out_of_reach(self.ends(job), kit.CHECKPOINT)
            job.close()

    def test_the_last_save_waits_for_a_thaw_within_its_limit(self):
        config = self.config(dict(STEPS, **{"train.steps": 400, "watchdog.save_abort_seconds": 60}))
        job = self.start(2, "--config", config)
        self.wait_for_steps(job, 5)
        with self.frozen():
            job.wait_for_output(": step 400,")
            job.wait_for_output("still writing after")
        result = self.ends(job, 60)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertEqual(kit.checkpoints(self.assert_whole(400)), ["step-00000400.h5"])

    def test_a_stop_with_a_save_in_flight_ends_within_the_limit(self):
        config = self.config(dict(STEPS, **{"checkpoint.every_steps": 5}))
        job = self.start(2, "--config", config)
        job.wait_for_output("checkpoint of step 5:")
        with self.frozen():
            job.wait_for_output("the one before is still being written")
            os.kill(job.process.pid, signal.SIGUSR1)
            self.assert_out_of_reach(self.ends(job), kit.CHECKPOINT)

    def test_ctrl_c_ends_a_job_whose_disk_does_not_answer(self):
        config = self.config(STEPS)
        job = self.start(2, "--config", config)
        self.wait_for_steps(job, 5)
        with self.frozen():
            self.wait_for_steps(job, 5)
            os.kill(job.process.pid, signal.SIGINT)
            self.assertNotEqual(self.ends(job).code, kit.OK)

    def test_an_error_of_all_ranks_with_a_save_in_flight_keeps_its_code(self):
        config = self.config(dict(STEPS, **{"checkpoint.every_steps": 5, "train.not_finite": "stop",
                                            "schedule.name": "piecewise", "schedule.boundaries": [120.0],
                                            "schedule.factors": [1e30]}))
        job = self.start(2, "--config", config)
        job.wait_for_output("checkpoint of step 5:")
        with self.frozen():
            job.wait_for_output("the one before is still being written")
            result = self.ends(job, 60)
            self.assertEqual(result.code, kit.NUMERICS, str(result))
            self.assertIn("disk/run/step-", [line for line in result.errors() if "given up" in line][0])

    def test_a_rollback_waits_for_the_save_in_flight_within_its_limit(self):
        config = self.config(dict(STEPS, **{"checkpoint.every_steps": 5, "train.not_finite": "rollback",
                                            "schedule.name": "piecewise", "schedule.boundaries": [120.0],
                                            "schedule.factors": [1e30]}))
        job = self.start(2, "--config", config)
        job.wait_for_output("checkpoint of step 5:")
        with self.frozen():
            job.wait_for_output("the one before is still being written")
            self.assert_out_of_reach(self.ends(job, 60), kit.CHECKPOINT)


if __name__ == "__main__":
    missing = [what for what, there in (("root", os.geteuid() == 0), ("loop devices", os.path.exists("/dev/loop-control")),
                                        ("mkfs.ext4", shutil.which("mkfs.ext4")), ("fsfreeze", shutil.which("fsfreeze")))
               if not there]
    if missing:
        print(f"skipped: freezing a file system needs {', '.join(missing)}")
        sys.exit(77)
    kit.main()
