"""Disks that fail, and checkpoints that are damaged or were left by a kill (fault_case.py)."""

import concurrent.futures
import errno
import glob
import os
import random
import signal
import subprocess
import time

import h5py

import kit
from fault_case import Case


class Disks(Case):
    def setUp(self):
        super().setUp()
        self.records(60)

    def fails(self, call, error):
        directory = f"{call.split(':')[0]}{error}"
        config = self.config({"train.steps": 12, "checkpoint.every_steps": 3, "checkpoint.directory": directory},
                             name=directory + ".toml")
        job = self.start(2, "--config", config, env=self.faulty(0, call, f"error:{error}"))
        result = self.ends(job, time.monotonic(), directory, 60)
        self.assertEqual(result.code, kit.CHECKPOINT, f"{directory}: {result}")
        self.assertTrue(any("step-00000012.h5" in line and os.strerror(error) in line for line in result.errors()),
                        f"{directory}: {result}")
        self.assertEqual(glob.glob(self.path(directory, "step-*")), [], directory)
        self.assertIn("failed saves so far: ", result.output, directory)

    def test_disks_that_fail_are_told_and_leave_no_stump(self):
        self.at_once(self.fails, [("write:/step-", errno.ENOSPC), ("write:/step-", errno.EDQUOT),
                                  ("write:/step-", errno.EROFS), ("fsync:/step-", errno.EIO),
                                  ("fsync:/step-", errno.EDQUOT)])

    def test_a_disk_that_turns_read_only_fails_the_last_save_and_keeps_the_one_before(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no right to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        # A disk on which a file is open for writing cannot be made read-only.
        config = self.config({"train.steps": 1_000_000, "train.epochs": 1e6, "checkpoint.directory": disk + "/run",
                              "log.jsonl": "", "log.tensorboard": False})
        self.train(2, config, {"train.steps": 3})
        job = self.start(2, "--config", config)
        job.wait_for_output("step 5,")
        # -f: the lock and the log are open for a moment now and then
        job.wait_for(lambda: subprocess.run(["mount", "-o", "remount,ro", disk], check=False,
                                            stderr=subprocess.DEVNULL).returncode == 0, "a read-only disk")
        job.process.send_signal(signal.SIGUSR1)
        result = self.ends(job, time.monotonic(), "read-only", 30)
        self.assertEqual(result.code, kit.CHECKPOINT, str(result))
        self.assertTrue(any("Read-only file system" in line and disk in line for line in result.errors()), str(result))
        self.assert_newest_is_whole(disk + "/run")

    def test_a_last_save_that_is_slower_than_the_limits_of_training_is_waited_for(self):
        config = self.config({"train.steps": 4, "watchdog.warn_seconds": 1, "watchdog.abort_seconds": 3,
                              "watchdog.save_abort_seconds": 60})
        result = self.train(2, config, wrapper=self.disk_fault("delay_enter=4000000"))
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000004.h5"])
        self.assertIn("still writing", result.output)


class Kills(Case):
    def killed_while_saving(self, times, seed):
        self.records(60)
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 1, "checkpoint.keep": 1})
        chance = random.Random(seed)
        for kill in range(times):
            job = self.start(2, "--config", config)
            job.wait_for_output("MB; snapshot ")  # of a save that is there, not of one that is skipped
            time.sleep(chance.random() * 0.3)
            job.kill()
            whole = self.run_job(0, "inspect", "--verify", self.path("run/latest"))
            self.assertEqual(whole.code, kit.OK, f"kill {kill}: {whole}")
        result = self.start(2, "--config", config)
        result.wait_for_output("resuming at step")

    def test_the_one_checkpoint_that_is_kept_is_whole_after_kills(self):
        self.killed_while_saving(2, 2)


class Damage(Case):
    """One changed byte anywhere in a checkpoint: an error that says so, never a crash, a hang or other weights."""

    def damaged(self, count):
        self.records(30)
        self.train(1, self.config({"train.steps": 1, "train.batch_size": 4}))
        with open(self.path("run/step-00000001.h5"), "rb") as file:
            good = file.read()
        chance = random.Random(3)
        offsets = [*range(0, 64), *(chance.randrange(len(good)) for _ in range(count - 64))]

        def inspect(offset, worker):
            data = bytearray(good)
            data[offset] ^= 1 << chance.randrange(8)
            path = kit.write(self.path(f"damaged{worker}.h5"), bytes(data))
            run = subprocess.run([kit.TRAINER, "inspect", "--verify", path], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=60, check=False)
            return run.returncode, run.stdout.decode(errors="replace")

        def all_of(worker):
            return [(offset, *inspect(offset, worker)) for offset in offsets[worker::3]]

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for results in pool.map(all_of, range(3)):
                for offset, code, output in results:
                    self.assertEqual(code, kit.CHECKPOINT, f"byte {offset}: {output}")
                    self.assertIn("damaged", output.lower(), f"byte {offset}")

    def test_a_changed_byte_is_found_wherever_it_is(self):
        self.damaged(90)


class Resumes(Case):
    def test_a_file_that_is_no_whole_checkpoint_is_refused_when_it_is_named(self):
        self.records(30)
        config = self.config()
        self.train(1, config, {"train.steps": 2, "checkpoint.directory": "other"})
        with open(self.path("other/step-00000002.h5"), "rb") as file:
            good = file.read()
        kit.write(self.path("truncated.h5"), good[:len(good) // 2])
        kit.write(self.path("empty.h5"), b"")
        with h5py.File(self.path("nothing.h5"), "w"):
            pass
        for name in ("truncated.h5", "empty.h5", "nothing.h5", "absent.h5"):
            refused = self.run_job(2, "--config", config, "--checkpoint.resume", self.path(name))
            self.assert_one_error(refused, kit.CHECKPOINT, name)


class SlowKills(Kills):
    def test_the_one_checkpoint_that_is_kept_is_whole_after_kills(self):
        self.killed_while_saving(50, 4)


class SlowDamage(Damage):
    def test_a_changed_byte_is_found_wherever_it_is(self):
        self.damaged(3000)


if __name__ == "__main__":
    kit.main()
