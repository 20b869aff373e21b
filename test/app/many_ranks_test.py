"""64 ranks on however many cores there are: how a large job starts, steps, saves, stops and fails, and what it prints."""

import os
import signal

import kit

RANKS = 64
SETTINGS = kit.merged(kit.SMALL, {
    "model.name": "wide_mlp", "model.classes": 2, "model.vocabulary": 124, "model.max_ids": 16, "model.hidden": [16, 16],
    "model.image_size": None, "data.format": "synthetic", "data.train": None, "data.normalize": "none",
    "train.batch_size": 2, "train.steps": 1000000, "watchdog.warn_seconds": 0, "watchdog.abort_seconds": 60})
OVERSUBSCRIBED = ["--oversubscribe", "--bind-to", "none"]


class Slow(kit.TestCase):
    def start_all(self, changes=None):
        return self.start(RANKS, "--config", self.config(changes, SETTINGS), flags=OVERSUBSCRIBED)

    def train_some_steps(self, changes=None):
        job = self.start_all(changes)
        job.wait_for(lambda: self.last_step(job) >= 3, "steps", 300)
        ranks = job.ranks()
        self.assertEqual(len(ranks), RANKS)
        return job, ranks

    def test_a_job_starts_stops_with_a_save_and_resumes_and_its_tables_are_short(self):
        job, _ = self.train_some_steps()
        job.process.send_signal(signal.SIGUSR1)
        stopped = job.wait(120)
        self.assertEqual(stopped.code, kit.STOPPED, str(stopped))
        self.assertEqual(stopped.errors(), [], str(stopped))
        cores = max(1, len(os.sched_getaffinity(0)) // RANKS)
        self.assert_once(stopped, f"ranks 0-{RANKS - 1} on {os.uname().nodename.split('.')[0]}: {cores} core")
        self.assert_once(stopped, "SIGUSR1 on all ranks")
        self.assert_once(stopped, "the state is saved")
        lines = [line for line in stopped.output.splitlines() if ": step " not in line]
        self.assertLess(len(lines), 30, str(stopped))
        step = self.last_step(job)
        result = self.start_all({"train.steps": step + 5}).wait(300)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertEqual(sorted(kit.per_step(self.path("run"), "loss")), list(range(1, step + 6)))

    def test_check_prints_a_row_for_all_ranks(self):
        result = self.start(RANKS, "check", "--config", self.config(None, SETTINGS), flags=OVERSUBSCRIBED).wait(300)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assert_once(result, f"ranks 0-{RANKS - 1} on ")
        self.assertLess(len(result.output.splitlines()), 40, str(result))

    def test_an_error_of_all_ranks_is_printed_once(self):
        result = self.start_all({"data.format": "sparse_tfrecord", "data.train": "nowhere.tfrecord"}).wait(300)
        self.assert_one_error(result, kit.DATA, "nowhere.tfrecord")

    def test_a_killed_rank_ends_the_job_and_no_other_rank_prints_an_error(self):
        job, ranks = self.train_some_steps({"checkpoint.every_steps": 2})
        os.kill(ranks[37], signal.SIGKILL)
        result = job.wait(60)
        self.assertEqual(result.code, 128 + signal.SIGKILL, str(result))
        self.assertEqual(result.errors(), [], str(result))
        self.assertEqual(self.run_job(0, "inspect", "--verify", self.path("run/latest")).code, kit.OK)

    # One rank reports and ends the job. On a machine that is too busy to end it within seconds, the next ranks follow.
    def test_a_suspended_rank_is_named_in_one_report_and_not_by_every_rank(self):
        job, ranks = self.train_some_steps({"watchdog.abort_seconds": 10, "watchdog.start_abort_seconds": 200})
        os.kill(ranks[37], signal.SIGSTOP)
        result = job.wait(90)
        self.assertEqual(result.code, kit.STALLED, str(result))
        self.assertGreater(len(result.errors()), 0, str(result))
        for error in result.errors():
            self.assertIn("rank 37@", error)
        reports = [name for name in os.listdir(self.path("run")) if name.startswith("stall-report")]
        self.assertIn("stall-report.rank0.txt", reports)
        self.assertLess(len(reports), RANKS // 2)


if __name__ == "__main__":
    kit.main()
