"""What may be wrong around a job: at its start, while it waits, and when mpirun gets a signal (fault_case.py)."""

import errno
import glob
import os
import signal
import subprocess

import h5py

import kit
from fault_case import GRACE, Case


class Starts(Case):
    def test_processes_that_do_not_know_each_other_are_refused(self):
        self.records(30)
        config = self.config()
        for env in ({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_PROCID": "2"},
                    {"PMI_SIZE": "2", "PMI_RANK": "1"}):
            result = self.run_job(0, "--config", config, env=env)
            self.assertEqual(result.code, kit.CONFIG, str(result))
            self.assertFalse(os.path.exists(self.path("run")))

    def test_counts_of_slurm_do_not_matter_under_mpirun(self):
        self.records(30)
        self.train(2, self.config({"train.steps": 2}), env={"SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "4"})

    def test_a_restart_with_nothing_to_resume_is_told(self):
        self.records(30)
        result = self.train(2, self.config({"train.steps": 2}), env={"SLURM_RESTART_COUNT": "1"})
        self.assertTrue(any("SLURM_RESTART_COUNT" in line for line in result.warnings()), str(result))

    def test_a_wall_clock_that_is_set_back_changes_nothing_but_times(self):
        self.records(30)
        self.train(2, self.config({"train.steps": 20, "checkpoint.every_steps": 5, "checkpoint.every_seconds": 1}),
                   env=self.faulty(0, clock="-86400"))
        self.assertEqual(kit.checkpoints(self.path("run"))[-1], "step-00000020.h5")
        self.assert_once(self.train(2, self.config({"train.steps": 22})), "resuming at step 20")

    def test_slots_of_another_optimizer_are_refused_by_name(self):
        self.records(30)
        self.train(1, self.config({"train.steps": 2}))
        result = self.run_job(2, "--config", self.config({"train.steps": 4, "optimizer.name": "adamw"}))
        self.assert_one_error(result, kit.CONFIG, "step-00000002.h5", "exp_avg")

    def test_an_older_file_is_not_gone_back_to_when_the_later_ones_cannot_be_deleted(self):
        self.records(30)
        for steps in (2, 4):
            self.train(1, self.config({"train.steps": steps}))
        config = self.config({"train.steps": 6, "checkpoint.resume": "run/step-00000002.h5",
                              "checkpoint.overwrite": True})
        later = self.path("run/step-00000004.h5")
        self.disk_fault("error=EIO")  # skips where nothing can be traced
        script = kit.write(self.path("wrapper.sh"), f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec "$@"
exec strace -f --seccomp-bpf -qq -o /dev/null -P {later} -e trace=unlink,unlinkat \\
  -e inject=unlink,unlinkat:error=EPERM "$@"
""")
        os.chmod(script, 0o755)
        result = self.run_job(2, "--config", config, wrapper=[script])
        self.assert_one_error(result, kit.CHECKPOINT, later, "cannot be deleted", os.strerror(errno.EPERM))

    def test_data_that_one_rank_does_not_see_are_told_with_its_name(self):
        self.records(30, "data/train.tfrecord")
        hide = f'mount -t tmpfs tmpfs "{self.path("data")}"'
        if subprocess.run(["unshare", "-m", "sh", "-c", hide], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no private mounts here")
        script = kit.write(self.path("wrapper.sh"), f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
exec unshare -m sh -c '{hide} && exec "$@"' sh "$@"
""")
        os.chmod(script, 0o755)
        result = self.run_job(3, "--config", self.config({"data.train": "data/train.tfrecord"}), wrapper=[script])
        self.assert_one_error(result, kit.DATA, "rank 1@", "data/train.tfrecord")
        self.assertLess(result.seconds, 15, str(result))

    def test_foreign_files_beside_the_checkpoints_are_left_alone(self):
        self.records(30)
        self.train(1, self.config({"train.steps": 2}))
        kit.write(self.path("run/notes.txt"), b"mine")
        kit.write(self.path("run/step-best.h5.tmp.bak"), b"mine")
        with h5py.File(self.path("run/step-99.h5"), "w"):
            pass  # an HDF5 file, but not ours
        result = self.train(2, self.config({"train.steps": 4, "checkpoint.keep": 1}))
        self.assertTrue(any("step-99.h5" in line for line in result.warnings()), str(result))
        self.assertLessEqual({"notes.txt", "step-99.h5", "step-best.h5.tmp.bak", "step-00000004.h5"},
                             set(os.listdir(self.path("run"))))


class Waits(Case):
    def test_an_evaluation_that_is_slower_than_the_limits_of_training_has_its_own(self):
        self.records(60)
        self.records(30, "validation.tfrecord", seed=1)
        config = self.config({"train.steps": 4, "data.validation": "validation.tfrecord", "watchdog.warn_seconds": 2,
                              "watchdog.abort_seconds": 5, "watchdog.evaluate_warn_seconds": 30,
                              "watchdog.evaluate_abort_seconds": 60})
        result = self.train(2, config, env=self.faulty(1, "read:validation.tfrecord", "delay:7"))
        self.assertNotIn("phase evaluation", result.output)
        self.assertGreater(result.seconds, 7)

    def test_records_that_one_rank_alone_must_skip_leave_no_rank_behind(self):
        samples = kit.images(96)
        for i in range(60, 72):  # rank 1's part of the third batch
            samples[i] = (b"not an image", 0)
        kit.write(self.path("train.tfrecord"), kit.tfrecord(samples))
        config = self.config({"data.bad_records": "skip", "data.shuffle": False, "train.steps": 4})
        self.train(2, config)
        event = [row for row in kit.metrics(self.path("run"), "event") if row["event"] == "bad_records"]
        self.assertEqual([sorted(record["index"] for record in row["records"]) for row in event], [list(range(60, 72))])
        self.assertEqual(sorted(kit.per_step(self.path("run"), "loss")), [1, 2, 3, 4])


class SlowStarts(Case):
    def setUp(self):
        super().setUp()
        self.records(30)
        self.settings = self.config({"train.steps": 4, "watchdog.start_abort_seconds": 20})

    def test_an_interface_that_does_not_exist_is_no_hang(self):
        flags = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "nosuch0"]
        result = self.run_job(2, "--config", self.settings, flags=flags)
        self.assertNotEqual(result.code, "timeout", str(result))
        self.assertLess(result.seconds, 20 + GRACE, str(result))
        if result.code != kit.OK:
            self.assertIn("nosuch0", result.output)

    def test_a_machine_with_the_loopback_interface_alone_will_do(self):
        if subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no private network here")
        command = f"ip link set lo up && {kit.MPIRUN} -np 2 {kit.TRAINER} --config {self.settings}"
        result = self.start_command(["unshare", "-n", "sh", "-c", command]).wait()
        self.assertEqual(result.code, kit.OK, str(result))

    def test_an_unprivileged_user_may_train(self):
        user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]
        if subprocess.run([*user, "test", "-x", kit.TRAINER], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no other user to be, or the build is in a private directory")
        os.chmod(self.directory, 0o777)
        os.chmod(kit.CACHE, 0o777)
        job = self.start_command([*user, kit.MPIRUN, "-np", "2", kit.TRAINER, "--config", self.settings],
                                 env={"HOME": self.directory})
        result = job.wait()
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertEqual(os.stat(self.path("run/step-00000004.h5")).st_uid, 1000)

    def test_a_rank_that_can_share_no_memory_leaves_the_gradients_to_mpi(self):
        # As in a sandbox that does not have the call.
        result = self.train(3, self.settings, env=self.faulty(1, "share", f"error:{errno.ENOSYS}"))
        self.assertEqual(result.errors(), [])
        self.assertRegex(result.output, r"cannot share memory, so gradients go through MPI.*rank 1@.*memfd_create: .*implement")
        self.assertNotIn("are summed in memory", result.output)

    def test_a_container_that_forbids_single_copies_between_processes_is_no_matter(self):
        env = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_btl_sm_single_copy_mechanism": "none"}
        result = self.train(3, self.settings, env=env)
        self.assertEqual(result.errors(), [])


class SlowStops(Case):
    """What mpirun makes of signals while a save is under way."""

    def stopped_while_saving(self, number, code):
        self.records(60)
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 1000})
        self.train(2, config, {"train.steps": 2})
        # Not by strace: mpirun would send it the signals.
        slow = self.faulty(0, "fsync:/step-", "delay:8")
        job = self.start(2, "--config", config, "--train.max_seconds", "1", env=slow)
        job.wait_for(lambda: glob.glob(self.path("run/step-*tmp*")), "a save under way")
        job.process.send_signal(number)
        result = job.wait(60)
        self.assertEqual(result.code, code, str(result))
        return result

    def test_sigterm_to_mpirun_leaves_the_checkpoint_before(self):
        result = self.stopped_while_saving(signal.SIGTERM, 1)
        self.assertNotIn("is saved", result.output)
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000002.h5"])
        self.assert_once(self.train(2, self.path("run.toml"), {"train.steps": 5}), "resuming at step 2 ")
        self.assertEqual(glob.glob(self.path("run/*tmp*")), [])

    def test_sigusr1_to_mpirun_gives_the_save_its_time(self):
        self.stopped_while_saving(signal.SIGUSR1, kit.STOPPED)
        self.assertEqual(len(kit.checkpoints(self.path("run"))), 2)


if __name__ == "__main__":
    kit.main()
