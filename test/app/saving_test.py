"""Saving beside training: a slow, failing or full disk."""

import os
import statistics
import subprocess

import kit


class Saving(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(60)

    def test_steps_go_on_while_a_save_waits_for_a_slow_disk(self):
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 50})
        job = self.start(2, "--config", config, wrapper=self.disk_fault("delay_enter=3000000"))
        job.wait_for_output("checkpoint of step 50:")
        # A thread of its own writes the row after that line.
        job.wait_for(lambda: kit.metrics(self.path("run"), "checkpoint"), "the row of the checkpoint")
        job.kill()
        self.assertEqual(job.output().count("is skipped: the one before is still being written"), 1)
        rows = kit.metrics(self.path("run"))
        saved = [i for i, row in enumerate(rows) if row["kind"] == "checkpoint"][0]
        seconds = {row["step"]: row["seconds_per_step"] for row in rows[:saved] if row["kind"] == "train"}
        before = [s for step, s in seconds.items() if 5 <= step <= 50]
        during = [s for step, s in seconds.items() if step > 50]
        print(f"a write of {rows[saved]['write_seconds']:.1f} s, snapshot {rows[saved]['snapshot_seconds']:.6f} s: "
              f"{len(during)} steps meanwhile, median {statistics.median(during):.4f} s, longest {max(during):.4f} s; "
              f"before: median {statistics.median(before):.4f} s, longest {max(before):.4f} s")
        self.assertGreaterEqual(rows[saved]["write_seconds"], 3)
        # Far from any noise: a step that waited for the disk would take three seconds.
        self.assertLess(rows[saved]["snapshot_seconds"], 1)
        self.assertGreater(len(during), 10)
        self.assertLess(max(during), 2)

    # The others would wait in their reduction, and their watchdogs end the job.
    def test_a_best_state_is_not_waited_for_while_another_save_waits_for_a_slow_disk(self):
        self.records(30, "validation.tfrecord", seed=1)
        config = self.config({"train.steps": 1_000_000, "data.validation": "validation.tfrecord", "eval.every_steps": 1,
                              "checkpoint.keep_best": True, "optimizer.lr": 0.03, "watchdog.warn_seconds": 1,
                              "watchdog.abort_seconds": 3, "watchdog.save_abort_seconds": 60})
        job = self.start(2, "--config", config, wrapper=self.disk_fault("delay_enter=6000000"))
        job.wait_for_output("is the best so far, but is not saved: the checkpoint before is still being written")
        step = max(kit.per_step(self.path("run"), "loss"))
        job.wait_for_output(f"step {step + 5},")
        job.kill()
        self.assertNotIn("in phase evaluation", job.output())

    def test_the_last_save_is_waited_for(self):
        config = self.config({"train.steps": 4})
        result = self.train(2, config, wrapper=self.disk_fault("delay_enter=1500000"))
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000004.h5"])
        self.assert_once(result, "checkpoint of step 4:")

    def test_a_last_save_that_fails_makes_the_run_fail(self):
        config = self.config({"train.steps": 4})
        result = self.train(2, config, code=kit.CHECKPOINT, wrapper=self.disk_fault("error=EIO"))
        self.assert_one_error(result, kit.CHECKPOINT, "step-00000004.h5")
        self.assertEqual(os.listdir(self.path("run")).count("latest"), 0)
        self.assertEqual([name for name in os.listdir(self.path("run")) if "tmp" in name], [])

    def test_a_save_that_fails_on_the_way_is_told_and_training_goes_on(self):
        config = self.config({"train.steps": 40, "checkpoint.every_steps": 15})
        wrapper = self.disk_fault("error=EIO:when=1")
        result = self.train(2, config, wrapper=wrapper)
        self.assertEqual(len(result.errors()), 1, str(result))
        self.assertIn("step-00000015.h5", result.errors()[0])
        self.assertIn("step-00000040.h5", kit.checkpoints(self.path("run")))
        self.assertNotIn("step-00000015.h5", kit.checkpoints(self.path("run")))
        strict = {"checkpoint.directory": "strict", "checkpoint.on_error": "fail"}
        self.assert_one_error(self.train(2, config, strict, kit.CHECKPOINT, wrapper=wrapper), kit.CHECKPOINT,
                              "step-00000015.h5")

    def test_a_full_disk_leaves_the_checkpoints_before_as_they_were(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk], check=False).returncode:
            self.skipTest("no right to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        config = self.config({"checkpoint.directory": disk + "/run", "checkpoint.keep": 100})
        for steps in (2, 4):  # 4.6 MB each
            self.train(2, config, {"train.steps": steps})
        result = self.train(2, config, {"train.steps": 6}, kit.CHECKPOINT)
        self.assertEqual(len(result.errors()), 1, str(result))
        self.assertIn("step-00000006.h5", result.errors()[0])
        self.assertEqual(kit.checkpoints(disk + "/run"), ["step-00000002.h5", "step-00000004.h5"])
        for name in kit.checkpoints(disk + "/run"):
            self.assertEqual(self.run_job(0, "inspect", "--verify", f"{disk}/run/{name}").code, kit.OK)
        os.remove(disk + "/run/step-00000002.h5")
        self.assert_once(self.train(2, config, {"train.steps": 6}), "resuming at step 4")


if __name__ == "__main__":
    kit.main()
