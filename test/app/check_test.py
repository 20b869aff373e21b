"""trainer check: what it tells of good and of bad jobs, and with which exit code."""

import os
import shutil
import subprocess

import kit


class Check(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(30)

    def check(self, ranks, code=kit.OK, changes=None, **more):
        result = self.run_job(ranks, "check", "--config", self.config(changes), **more)
        self.assertEqual(result.code, code, str(result))
        return result

    def row(self, result, name):
        rows = [line for line in result.output.splitlines() if line[2:].startswith(name + " ")]
        self.assertEqual(len(rows), 1, f"one row {name}: {result}")
        return rows[0]

    def test_a_good_job_gets_one_table_and_leaves_nothing_behind(self):
        for ranks in (0, 3):
            result = self.check(ranks)
            for name in ("program", "configuration", "MPI", "HDF5", "CPU kernels", "processor", "training data",
                         "model", "device", "allreduce", "checkpoints", "network settings"):
                self.assertTrue(self.row(result, name).startswith("  "), f"{name} does not differ: {result}")
            for rank in range(max(ranks, 1)):
                self.assertRegex(self.row(result, f"rank {rank}@{os.uname().nodename.split('.')[0]}"), r"pid \d+, \d+ core")
            self.assertIn("in shared memory" if ranks else "nothing to reduce", self.row(result, "allreduce"))
            self.assertIn("30 samples", self.row(result, "training data"))
            self.assert_once(result, "check passed")
            self.assertEqual(result.errors(), [], str(result))
            self.assertFalse(os.path.exists(self.path("run")), "the directory was made for a moment only")

    def test_help_names_it_and_a_misspelling_suggests_it(self):
        self.assertIn("check", self.run_job(0, "--help").output)
        self.assert_one_error(self.run_job(0, "chekc", "--config", self.config()), kit.CONFIG, "check")

    def test_another_program_on_one_rank_is_named(self):
        other = self.path("other")
        shutil.copy(kit.TRAINER, other)
        with open(other, "ab") as file:
            file.write(b"another build")
        wrapper = self.of_rank_1(f'shift; exec "{other}" "$@"')
        result = self.check(3, kit.CONFIG, wrapper=wrapper)
        self.assertTrue(self.row(result, "program").startswith("* "), str(result))
        self.assert_one_error(result, kit.CONFIG, "program differs between ranks", "rank 1@", "what to do")
        # Training makes the same comparison when it starts.
        result = self.run_job(3, "--config", self.config(), wrapper=wrapper)
        self.assert_one_error(result, kit.CONFIG, "program differs between ranks", "rank 1@")

    def test_other_data_of_the_same_length_on_one_rank_are_found(self):
        other = self.records(30, "other.tfrecord", seed=5)
        mount = f'mount --bind "{other}" "{self.path("train.tfrecord")}"'
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no private mounts here")
        wrapper = self.of_rank_1(f"exec unshare -m sh -c '{mount} && exec \"$@\"' sh \"$@\"")
        result = self.check(2, kit.DATA, wrapper=wrapper)
        self.assert_one_error(result, kit.DATA, "training data differs between ranks", "rank 1@")
        self.assertTrue(self.row(result, "training data").startswith("* "), str(result))

    def test_missing_data_are_told_and_the_other_stages_go_on(self):
        result = self.check(2, kit.DATA, {"data.train": "nowhere.tfrecord"})
        self.assert_one_error(result, kit.DATA, "nowhere.tfrecord")
        self.row(result, "model")
        self.row(result, "checkpoints")
        self.assert_once(result, "check failed: 1 error, exit code 3")

    def test_a_checkpoint_directory_without_room_is_told(self):
        disk = self.path("disk")
        os.mkdir(disk)
        mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk]
        if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no right to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        result = self.check(2, kit.CHECKPOINT, {"checkpoint.directory": disk + "/run"})
        self.assert_one_error(result, kit.CHECKPOINT, disk, "checkpoint.keep = 5", "6 more checkpoints")
        self.check(2, kit.OK, {"checkpoint.directory": disk + "/run", "checkpoint.keep": 1})

    def test_a_checkpoint_directory_that_cannot_be_made_is_told(self):
        kit.write(self.path("file"), b"")
        result = self.check(2, kit.CHECKPOINT, {"checkpoint.directory": "file/run"})
        self.assert_one_error(result, kit.CHECKPOINT, "file/run")

    def test_a_clock_that_is_ahead_is_a_warning_that_names_the_rank(self):
        result = self.check(2, env=self.faulty(1, clock="3600"))
        self.assertTrue(any("the clock of rank 1@" in line and "3600" in line for line in result.warnings()),
                        str(result))
        self.assert_once(result, "check passed, with warnings")

    def test_an_interface_that_does_not_exist_is_a_warning(self):
        result = self.check(2, env={"NCCL_SOCKET_IFNAME": "nosuch0"})
        self.assertTrue(any("names nosuch0" in line for line in result.warnings()), str(result))

    def test_ranks_that_share_a_core_and_leave_another_idle_are_warnings_with_the_right_command_lines(self):
        cores = sorted(os.sched_getaffinity(0))
        siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        if len({open(siblings.format(core)).read() for core in cores}) < 2:
            self.skipTest("one core")
        result = self.check(2, flags=["--bind-to", "none"], wrapper=["taskset", "-c", str(cores[0])])
        warnings = [line for line in result.warnings() if "compute" in line]
        self.assertEqual(len(warnings), 2, str(result))
        self.assertIn(f"2 ranks compute with 2 threads on 1 processor ({cores[0]}); what to do: 'mpirun -np 2 --map-by ",
                      warnings[0])
        self.assertRegex(warnings[1], r"2 ranks compute on 1 of \d+ cores; .*:PE=\d+ --bind-to core'")
        self.assertNotIn("compute with", "".join(self.check(1, flags=["--bind-to", "none"]).warnings()))

    def test_processes_that_do_not_know_each_other_are_refused(self):
        result = self.run_job(0, "check", "--config", self.config(), env={"PMI_SIZE": "2", "PMI_RANK": "1"})
        self.assert_one_error(result, kit.CONFIG, "PMI_SIZE=2")

    # Its limit is that of the start: the others name the rank that is missing.
    def test_a_rank_that_stands_still_ends_the_check(self):
        result = self.check(2, kit.STALLED, {"watchdog.warn_seconds": 1, "watchdog.abort_seconds": 3},
                            env=self.faulty(1, "open:train.tfrecord", "hold"))
        self.assertTrue(any("rank 1@" in line for line in result.errors()), str(result))
        self.assertLess(result.seconds, 20)


if __name__ == "__main__":
    kit.main()
