"""Jobs that are killed or stall."""

import glob
import os
import random
import signal
import subprocess

import kit


class Case(kit.TestCase):
    def assert_readable_by_others(self, path):
        for command in (["h5dump", "-H"], ["h5ls", "-r"]):
            subprocess.run([*command, path], stdout=subprocess.DEVNULL, check=True)
        self.assertEqual(kit.datasets(path)["model/fc5.bias"].shape, (10,))

    def kill_again_and_again(self, times):
        self.records(60)
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 3})
        chance = random.Random(1)
        last = 0
        for _ in range(times):
            job = self.start(2, "--config", config)
            job.wait_for(lambda: f"step {last + 1}," in job.output(), f"step {last + 1}")
            job.wait_for(lambda wait=iter(range(chance.randrange(60))): next(wait, None) is None, "chance")
            job.kill()
            names = kit.checkpoints(self.path("run"))
            for name in names:
                self.assert_readable_by_others(self.path("run", name))
            if last:
                self.assertIn(f"resuming at step {last} ", job.output())
            last = max([int(name[5:-3]) for name in names], default=0)
            with open(self.path("run/metrics.jsonl"), "a") as file:
                file.write('{"kind":"train","st')  # as if the kill had come in the middle of a line
        self.assertGreater(last, 0)
        self.train(2, config, {"train.steps": last + 5})
        self.assertEqual(sorted(kit.per_step(self.path("run"), "loss")), list(range(1, last + 6)))
        self.assertEqual(glob.glob(self.path("run/*tmp*")) + glob.glob(self.path("run/run.lock*")), [])


class Kills(Case):
    def test_a_job_killed_at_any_moment_continues_from_a_whole_checkpoint(self):
        self.kill_again_and_again(10)

    def test_what_a_kill_in_the_middle_of_a_write_leaves_is_removed_at_the_next_start(self):
        self.records(60)
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 20})
        self.train(2, config, {"train.steps": 10})
        job = self.start(2, "--config", config, wrapper=self.disk_fault("delay_enter=60000000"))
        job.wait_for(lambda: glob.glob(self.path("run/step-*tmp*")), "a temporary file")
        job.kill()
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000010.h5"])
        self.assertTrue(glob.glob(self.path("run/step-*tmp*")))
        self.assert_once(self.train(2, config, {"train.steps": 15}), "resuming at step 10")
        self.assertEqual(sorted(os.listdir(self.path("run"))),
                         ["latest", "metrics.jsonl", "step-00000010.h5", "step-00000015.h5", "tensorboard"])

    def test_a_killed_rank_ends_the_job(self):
        self.records(60)
        config = self.config({"train.steps": 1_000_000})
        for victim in (0, 1):
            job = self.start(2, "--config", config, "--checkpoint.directory", f"run{victim}")
            job.wait_for_output("step 3,")
            os.kill(job.ranks()[victim], signal.SIGKILL)
            result = job.wait(30)
            self.assertNotIn(result.code, (0, "timeout"), str(result))


class Stalls(kit.TestCase):
    def test_a_rank_that_stands_still_is_named_and_ends_the_job(self):
        self.records(60)
        config = self.config({"train.steps": 1_000_000, "watchdog.warn_seconds": 1, "watchdog.abort_seconds": 3})
        for ranks, victim in ((2, 1), (2, 0), (3, 2)):
            job = self.start(ranks, "--config", config, "--checkpoint.directory", f"run{ranks}{victim}")
            job.wait_for_output("step 3,")
            os.kill(job.ranks()[victim], signal.SIGSTOP)
            result = job.wait(40)
            self.assertEqual(result.code, kit.STALLED, str(result))
            # The stop may reach it before or after it has joined the all-reduce.
            self.assertRegex("\n".join(result.errors()),
                             f"rank {victim}@[^ ]+ (has not arrived|is silent) .*(in phase training|last heard)", str(result))


class Slow(Case):
    def test_a_job_killed_many_times_continues_from_a_whole_checkpoint(self):
        self.kill_again_and_again(50)


if __name__ == "__main__":
    kit.main()
