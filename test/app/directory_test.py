"""One run, one directory: who may write into it, and what is taken from it."""

import os
import shutil
import signal

import kit


class RunDirectory(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(30)

    def contents(self, directory="run"):
        """Names, sizes and times of the checkpoints, and where `latest` points."""
        found = {name: os.stat(self.path(directory, name)) for name in kit.checkpoints(self.path(directory))}
        return {n: (s.st_ino, s.st_size, s.st_mtime_ns) for n, s in found.items()}, os.readlink(
            self.path(directory, "latest"))

    def test_a_second_run_is_turned_away_and_told_who_owns_the_directory(self):
        config = self.config({"train.steps": 1_000_000})
        first = self.start(2, "--config", config)
        first.wait_for_output("step 3,")
        owner = first.ranks()[0]
        for ranks in (0, 2):
            self.assert_one_error(self.run_job(ranks, "--config", config), kit.CONFIG, "run.lock", f"process {owner} ")
        first.process.send_signal(signal.SIGUSR1)
        self.assertEqual(first.wait().code, kit.STOPPED)
        self.assertFalse(os.path.exists(self.path("run/run.lock")))

    # Twice: in a fresh directory, and in one that a dead run has left locked.
    def test_of_runs_that_start_at_once_one_wins(self):
        config = self.config({"train.steps": 1_000_000})
        for _ in range(2):
            jobs = [self.start(0, "--config", config) for _ in range(4)]
            for job in jobs:
                job.wait_for(lambda job=job: job.process.poll() is not None or "step 3," in job.output(), "an outcome")
            losers = [job for job in jobs if job.process.poll() is not None]
            self.assertEqual(len(losers), 3, "\n".join(job.output() for job in jobs))
            for job in losers:
                self.assert_one_error(job.wait(), kit.CONFIG, "run.lock")
            for job in jobs:
                job.kill()
            self.assertTrue(os.path.exists(self.path("run/run.lock")))

    def test_the_lock_of_a_dead_process_is_taken_over_at_once(self):
        config = self.config({"train.steps": 1_000_000})
        first = self.start(2, "--config", config)
        first.wait_for_output("step 3,")
        first.kill()
        self.assertTrue(os.path.exists(self.path("run/run.lock")))
        result = self.train(2, config, {"train.steps": 5})
        self.assertLess(result.seconds, 20)

    def test_a_finished_run_evaluates_and_writes_no_checkpoint(self):
        config = self.config({"data.validation": "train.tfrecord", "train.steps": 4})
        first = self.train(2, config)
        before = self.contents()
        second = self.train(2, config)
        self.assertEqual(self.contents(), before)
        line = [line for line in first.output.splitlines() if "evaluation at step 4" in line]
        self.assertEqual(len(line), 1, str(first))
        self.assert_once(second, line[0])

    def test_resume_never_wants_a_fresh_directory(self):
        config = self.config({"train.steps": 4})
        self.train(2, config)
        before = self.contents()
        for ranks in (0, 2):
            result = self.run_job(ranks, "--config", config, "--checkpoint.resume", "never")
            self.assert_one_error(result, kit.CONFIG, "run holds checkpoints", "checkpoint.overwrite")
        self.assertEqual(self.contents(), before)
        self.train(2, config, {"checkpoint.resume": "never", "checkpoint.overwrite": "true", "train.steps": 2})
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000002.h5"])
        self.assertEqual(sorted(kit.per_step(self.path("run"), "loss")), [1, 2])

    def test_resume_must_wants_a_checkpoint(self):
        config = self.config({"train.steps": 2})
        for ranks in (0, 2):
            result = self.run_job(ranks, "--config", config, "--checkpoint.resume", "must")
            self.assert_one_error(result, kit.CHECKPOINT, "checkpoint.resume", "run")

    def test_damaged_files_are_passed_over_with_a_warning_each(self):
        config = self.config({"train.steps": 4, "checkpoint.every_steps": 2})
        self.train(1, config)
        good = self.path("run/step-00000004.h5")
        size = os.path.getsize(good)
        shutil.copy(good, self.path("run/step-00000009.h5"))
        os.truncate(self.path("run/step-00000009.h5"), size // 2)
        kit.write(self.path("run/step-00000010.h5"), b"")
        kit.write(self.path("run/step-00000011.h5"), kit.png(kit.numpy.zeros((4, 4, 3), kit.numpy.uint8)))
        with open(good, "rb") as file:
            data = bytearray(file.read())
        data[size // 2] ^= 1
        kit.write(self.path("run/step-00000012.h5"), bytes(data))
        result = self.train(2, config, {"train.steps": 6})
        self.assert_once(result, "resuming at step 4")
        for step in (9, 10, 11, 12):
            warned = [line for line in result.warnings() if f"step-{step:08d}.h5" in line]
            self.assertEqual(len(warned), 1, f"one warning about the file of step {step}: {result}")

    def test_nothing_is_trained_when_every_file_is_damaged(self):
        config = self.config({"train.steps": 4, "checkpoint.every_steps": 2})
        self.train(1, config)
        for name in kit.checkpoints(self.path("run")):
            os.truncate(self.path("run", name), 5000)
        before = self.contents()
        for ranks in (0, 2):
            result = self.run_job(ranks, "--config", config)
            self.assert_one_error(result, kit.CHECKPOINT, "no whole one")
        self.assertEqual(self.contents(), before)

    def test_the_newest_file_is_the_one_whose_stored_step_is_highest(self):
        config = self.config({"train.steps": 4, "checkpoint.every_steps": 2})
        self.train(1, config)
        os.rename(self.path("run/step-00000002.h5"), self.path("run/step-9.h5"))
        self.assert_once(self.train(1, config, {"train.steps": 6}), "resuming at step 4")

    def test_only_the_newest_files_are_kept(self):
        self.train(2, self.config({"train.steps": 9, "checkpoint.every_steps": 2, "checkpoint.keep": 2}))
        kept = kit.checkpoints(self.path("run"))
        self.assertEqual((len(kept), kept[-1]), (2, "step-00000009.h5"))
        self.assertEqual(os.readlink(self.path("run/latest")), "step-00000009.h5")


if __name__ == "__main__":
    kit.main()
