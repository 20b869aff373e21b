"""What a run writes into its directory, and what it leaves alone."""

import errno
import os
import shutil
import signal
import stat
import subprocess

import kit

FOREIGN = "notes on the run\n{\"step\": 12}\nno line break at the end"


class Directory(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(60)

    def stopped(self, job):
        os.kill(job.process.pid, signal.SIGUSR1)
        result = job.wait()
        self.assertEqual(result.code, kit.STOPPED, str(result))
        return result

    def test_a_directory_that_is_deleted_or_moved_during_the_run_is_made_again(self):
        config = self.config({"train.steps": 1_000_000})
        for remove in (shutil.rmtree, lambda run: os.rename(run, run + ".moved")):
            job = self.start(2, "--config", config)
            self.wait_for_steps(job, 5)
            ranks = job.ranks()
            for pid in ranks:  # no file is made while others are deleted
                os.kill(pid, signal.SIGSTOP)
            remove(self.path("run"))
            for pid in ranks:
                os.kill(pid, signal.SIGCONT)
            self.wait_for_steps(job, 5)
            job.wait_for(lambda: os.path.exists(self.path("run/metrics.jsonl")), "the log")
            result = self.stopped(job)
            self.assert_once(result, "metrics.jsonl: was deleted or moved during the run; a new file is started")
            step = self.last_step(job)
            self.assertEqual(kit.checkpoints(self.path("run")), [f"step-{step:08}.h5"])
            logged = sorted(kit.per_step(self.path("run"), "loss"))
            self.assertEqual(logged, list(range(logged[0], step + 1)))
            self.assertEqual(len(os.listdir(self.path("run/tensorboard/train"))), 1)
            shutil.rmtree(self.path("run"))

    def test_a_file_that_is_not_the_runs_is_never_rewritten(self):
        config = self.config({"train.steps": 2})
        notes = kit.write(self.path("notes.txt"), FOREIGN)
        result = self.train(2, config, {"log.jsonl": "../notes.txt"}, kit.CONFIG)
        self.assert_one_error(result, kit.CONFIG, "log.jsonl = '../notes.txt'", "outside the run's directory")
        with open(notes) as file:
            self.assertEqual(file.read(), FOREIGN)
        inside = kit.write(self.path("run/notes.txt"), FOREIGN)
        self.train(2, config, {"log.jsonl": "notes.txt"})
        self.train(2, config, {"log.jsonl": "notes.txt", "train.steps": 3})
        with open(inside) as file:
            self.assertTrue(file.read().startswith(FOREIGN + "\n{\"kind\":"))

    def test_who_may_read_and_write_files_is_the_umasks_to_say(self):
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 5})
        before = os.umask(0o002)
        self.addCleanup(os.umask, before)
        job = self.start(2, "--config", config)
        job.wait_for_output("checkpoint of step 5:")
        modes = {}
        for directory, _, names in os.walk(self.path("run")):
            for name in names:
                path = os.path.join(directory, name)
                if not os.path.islink(path) and not name.endswith((".tmp", ".1")) and os.path.exists(path):
                    modes[name] = stat.S_IMODE(os.stat(path).st_mode)
        self.stopped(job)
        self.assertGreaterEqual(len(modes), 4, modes)
        self.assertEqual({name: mode for name, mode in modes.items() if mode != 0o664}, {})

    def test_the_best_checkpoint_is_kept_where_a_copy_has_lost_the_links(self):
        self.records(30, "validation.tfrecord", seed=1)
        config = self.config({"data.validation": "validation.tfrecord", "eval.every_steps": 1, "checkpoint.keep": 1,
                              "checkpoint.keep_best": True, "checkpoint.every_steps": 1, "optimizer.lr": 1e-9})
        self.train(2, config, {"train.steps": 2})
        best = os.readlink(self.path("run/best"))
        for link in ("best", "latest"):
            os.remove(self.path("run", link))
        self.train(2, config, {"train.steps": 5})  # with such a rate nothing becomes better
        self.assertIn(best, kit.checkpoints(self.path("run")))
        newest = kit.datasets(self.path("run", kit.checkpoints(self.path("run"))[-1]))
        self.assertEqual(f"step-{newest['training/best_step'][0]:08}.h5", best)

    def test_a_benchmark_leaves_the_directories_of_runs_alone(self):
        runs = self.path("runs/cifar10_cnn")
        kit.write(os.path.join(runs, "step-00000007.h5"), b"a checkpoint")
        kit.write(os.path.join(runs, "run.lock"), b"somebody's")
        before = {name: os.stat(os.path.join(runs, name)).st_mtime_ns for name in os.listdir(runs)}
        os.chmod(runs, 0o555)
        result = self.run_job(2, "--model", "cifar10_cnn", "--batch_size", "4", "--num_batches", "3",
                              "--num_warmup_batches", "1", "--num_alone_batches", "0")
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertNotIn("checkpoint", result.output)
        self.assertEqual({name: os.stat(os.path.join(runs, name)).st_mtime_ns for name in os.listdir(runs)}, before)

    def test_the_message_tells_inodes_that_are_used_up_from_bytes(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=5", "tmpfs", disk], check=False).returncode:
            self.skipTest("no right to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        config = self.config({"train.steps": 2, "checkpoint.directory": disk + "/run", "log.tensorboard": False})
        kit.write(disk + "/one", b"")  # the root, this, the directory, its lock and its log
        result = self.train(2, config, code=kit.CHECKPOINT)
        self.assert_one_error(result, kit.CHECKPOINT, "inodes of this file system are used up")

    def test_a_quota_that_is_used_up_is_named(self):
        config = self.config({"train.steps": 2})
        result = self.train(2, config, code=kit.CHECKPOINT, env=self.faulty(0, "write:/step-", f"error:{errno.EDQUOT}"))
        self.assert_one_error(result, kit.CHECKPOINT, "step-00000002.h5", "a quota of this user, group or project is used up")
        self.assertNotIn("bytes free", result.output)

    def test_a_link_that_leads_nowhere_is_named(self):
        os.symlink("/nowhere/runs", self.path("run"))
        result = self.train(2, self.config({"train.steps": 2}), code=kit.CHECKPOINT)
        self.assert_one_error(result, kit.CHECKPOINT, "run is a symbolic link to /nowhere/runs, which does not exist")

    def test_the_last_line_says_what_stopped_the_run(self):
        config = self.config({"train.steps": 1_000_000})
        job = self.start(2, "--config", config)
        self.wait_for_steps(job, 3)
        result = self.stopped(job)
        self.assertRegex(result.output, r"stopped on request at step \d+: the state is saved in \S+/run \(SIGUSR1 on all ranks;")
        job = self.start(2, "--config", config)
        self.wait_for_steps(job, 3)
        os.kill(job.ranks()[1], signal.SIGTERM)
        result = job.wait()
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assertRegex(result.output, r"stopped on request at step \d+: .* \(SIGTERM on rank 1@\S+;")
        result = self.train(2, config, {"train.max_seconds": "0.5"}, kit.STOPPED)
        self.assertRegex(result.output, r"\nstopped at step \d+: .* \(train.max_seconds = 0.5;")


if __name__ == "__main__":
    kit.main()
