"""How a job ends that cannot go on: who is named, with which code, how soon; and what must not end it."""

import os
import pathlib
import signal
import subprocess
import time

import kit

ENDLESS = {"train.steps": 1_000_000}
QUICK = {"watchdog.warn_seconds": 2, "watchdog.abort_seconds": 4}

# Runs the trainer on rank 0, and something else on the others. Not a second program on mpirun's command line: Debian
# 13's mpirun crashes on any.
ON_OTHERS = 'test "$OMPI_COMM_WORLD_RANK" = 0 || {}; exec "$@"'


class Case(kit.TestCase):
    def setUp(self):
        super().setUp()
        self.records(60)

    def start_on_others(self, ranks, what, *arguments):
        return self.start(ranks, *arguments, wrapper=["sh", "-c", ON_OTHERS.format(what), "sh"])

    def assert_ends(self, result, code, limit, *texts):
        self.assertEqual(result.code, code, str(result))
        self.assertLess(result.seconds, limit, str(result))
        for text in texts:
            self.assertIn(text, result.output, str(result))


class Stalls(Case):
    def test_a_suspended_rank_is_warned_of_by_one_rank_then_the_job_ends_with_a_report(self):
        config = self.config({**ENDLESS, **QUICK})
        job = self.start(3, "--config", config)
        job.wait_for_output("step 100,")  # some heartbeats have told where the ranks are
        os.kill(job.ranks()[1], signal.SIGSTOP)
        stopped = time.monotonic()
        job.wait_for_output("error: ")
        result = job.wait(30)
        self.assertEqual(result.code, kit.STALLED, str(result))
        self.assertLess(time.monotonic() - stopped, 4 + 10)
        warnings = [line for line in result.warnings() if "no progress" in line]
        self.assertEqual(len(warnings), 1, str(result))
        self.assertRegex(warnings[0], r"rank 0@\S+: warning: no progress for \d s in phase training, step \d+; waits for "
                                      r"'(step \d+ bucket \d+ of \d+|(?:gathering|comparing text) for the log line)': "
                                      r"(rank 1@\S+ has not arrived \(|all have arrived, and yet it does not end)")
        self.assertEqual(len(result.errors()), 1, str(result))
        self.assertRegex(result.errors()[0], r"rank 1@\S+ (has not arrived|is silent) \(last heard \d s ago in phase training, step "
                                             r"\d+\) \[training, step \d+\]; report: \S*/run/stall-report.rank0.txt")
        with open(self.path("run/stall-report.rank0.txt")) as file:
            report = file.read()
        for text in ("rank 0@", "rank 1@", "rank 2@", "phase training", "scan of the data, step 0", "last steps"):
            self.assertIn(text, report)

    def test_a_rank_that_never_starts_is_told_apart_by_its_host_and_reported_by_one_rank(self):
        config = self.config(ENDLESS)
        limits = ("--watchdog.start_abort_seconds", "4", "--watchdog.start_warn_seconds", "2")
        never = 'test "$OMPI_COMM_WORLD_RANK" != 3 || sleep 60'
        result = self.start_on_others(4, never, "--config", config, *limits).wait(40)
        self.assert_ends(result, kit.STALLED, 4 + 10, "phase start of MPI",
                         "1 of 4 ranks of this host do not run this program (those that do: 0, 1, 2)")
        self.assertEqual(len(result.warnings()), 1, str(result))
        self.assertLess(len(result.errors()), 3, str(result))  # on a busy machine the next rank may follow

class Deaths(Case):
    def start_under_hanging_launcher(self, *arguments):
        """A job of one rank that ends while MPI starts, under a launcher that then hangs."""
        kit.write(self.path("mpirun"), b"""#!/bin/sh
trap "echo asked to end" TERM
"$@"
echo the rank ended
while :; do sleep 0.2; done
""")
        os.chmod(self.path("mpirun"), 0o755)
        env = dict(self.faulty(0, "mpi", "hold"), TEST_MARK=self.directory)
        job = self.start_command([self.path("mpirun"), kit.TRAINER, "--config", self.config(ENDLESS),
                                  "--watchdog.start_abort_seconds", "1", *arguments], env=env)
        job.wait_for_output("the rank ended")
        return job

    def left_behind(self):
        """The processes of this test that still run the program."""
        mark = f"TEST_MARK={self.directory}".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (os.path.samefile(process / "exe", kit.TRAINER)
                        and mark in (process / "environ").read_bytes().split(b"\0")):
                    found.append(process.name)
            except OSError:  # It is another user's, or has ended.
                pass
        return found

    def test_a_launcher_that_does_not_end_though_its_ranks_have_is_asked_to_then_killed(self):
        job = self.start_under_hanging_launcher()
        self.assertNotIn("asked to end", job.output())
        self.assertEqual(len(self.left_behind()), 1)
        job.wait_for_output("asked to end")
        self.assertEqual(job.wait(30).code, -signal.SIGKILL)

    def test_a_launcher_that_is_not_watched_is_left_alone(self):
        job = self.start_under_hanging_launcher("--comm.watch_launcher", "false")
        self.assertEqual(self.left_behind(), [])
        job.kill()

    def test_a_rank_that_dies_ends_the_job_and_nothing_claims_to_be_saved(self):
        config = self.config(ENDLESS)
        for number, code in ((signal.SIGKILL, 137), (signal.SIGSEGV, 139), (signal.SIGABRT, 134)):
            job = self.start(2, "--config", config, "--checkpoint.directory", f"run{number}")
            job.wait_for_output("step 3,")
            os.kill(job.ranks()[1], number)
            result = job.wait(30)
            self.assertEqual(result.code, code, str(result))
            self.assertNotIn("saved", result.output)
            if number != signal.SIGKILL:
                self.assertRegex(result.output, rf"rank 1@\S+: error: {number.name} \(.*\) \[training, step \d+\]")

    def test_the_threads_of_a_rank_bear_names(self):
        job = self.start(2, "--config", self.config(ENDLESS))
        job.wait_for_output("step 3,")
        for rank, pid in enumerate(job.ranks()):
            names = {path.read_text().strip() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")}
            expected = {"trainer", "reduction", "loader", "watchdog", "heartbeats", "signals"}
            expected |= {"writer", "run lock"} if rank == 0 else set()
            self.assertGreaterEqual(names, expected)
            self.assertEqual(pathlib.Path(f"/proc/{pid}/comm").read_text(), "trainer\n")

    def test_a_wrong_option_on_one_rank_alone_ends_all_at_once(self):
        config = self.config(ENDLESS)
        result = self.start_on_others(2, 'set -- "$@" --train.nonsense 1', "--config", config).wait(40)
        self.assert_one_error(result, kit.CONFIG, "rank 1@", "train.nonsense")
        self.assertLess(result.seconds, 20, str(result))

class Stops(Case):
    def test_a_stop_is_heard_in_the_middle_of_an_evaluation(self):
        validation = kit.write(self.path("validation.tfrecord"), kit.tfrecord(kit.images(60)) * 500)
        config = self.config({**ENDLESS, "data.validation": validation, "eval.every_steps": 2, "eval.batch_size": 1})
        job = self.start(2, "--config", config)
        job.wait_for_output("step 2,")
        time.sleep(0.5)
        asked = time.monotonic()
        os.kill(job.ranks()[1], signal.SIGUSR1)
        result = job.wait(60)
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assertIn("the evaluation at step 2 is left", result.output)
        self.assertLess(time.monotonic() - asked, 10)
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000002.h5"])


class Slow(Case):
    def test_a_suspended_rank_that_continues_costs_a_warning_and_so_does_a_suspended_job(self):
        config = self.config({**ENDLESS, "watchdog.warn_seconds": 1, "watchdog.abort_seconds": 4})
        job = self.start(2, "--config", config)
        job.wait_for_output("step 3,")
        ranks = job.ranks()
        os.kill(ranks[1], signal.SIGSTOP)
        job.wait_for_output("warning: no progress")
        os.kill(ranks[1], signal.SIGCONT)
        for number in (signal.SIGSTOP, signal.SIGCONT):  # longer than the limit
            for rank in ranks:
                os.kill(rank, number)
            time.sleep(6 if number == signal.SIGSTOP else 1)
        os.kill(ranks[0], signal.SIGUSR1)
        self.assertEqual(job.wait(30).code, kit.STOPPED, job.output())

    def test_a_configuration_that_never_comes_is_refused_by_its_name(self):
        os.mkfifo(self.path("pipe.toml"))
        self.assert_one_error(self.run_job(2, "--config", "pipe.toml"), kit.CONFIG, "pipe.toml: is a pipe",
                              "nothing came from it for 30 s")

    def test_a_terminal_that_takes_no_more_output_does_not_keep_the_watchdog_from_ending_the_run(self):
        config = self.config({**ENDLESS, **QUICK})
        reading, writing = os.pipe()
        process = subprocess.Popen([kit.TRAINER, "--config", config], cwd=self.directory, stdout=writing,
                                   stderr=subprocess.PIPE, env=kit.environment({"OMPI_COMM_WORLD_SIZE": None}))
        os.close(writing)
        _, errors = process.communicate(timeout=60)
        os.close(reading)
        self.assertEqual(process.returncode, kit.STALLED, errors)
        self.assertIn(b"error: no progress for", errors)

    def test_with_the_watchdog_off_a_suspended_rank_is_waited_for(self):
        config = self.config({**ENDLESS, "watchdog.warn_seconds": 1, "watchdog.abort_seconds": 1,
                              "watchdog.enabled": False})
        job = self.start(2, "--config", config)
        job.wait_for_output("step 3,")
        os.kill(job.ranks()[1], signal.SIGSTOP)
        time.sleep(4)
        os.kill(job.ranks()[1], signal.SIGCONT)
        os.kill(job.ranks()[0], signal.SIGUSR1)
        result = job.wait(30)
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assertEqual(result.warnings(), [])

    def test_another_subcommand_on_one_rank_ends_all_at_once(self):
        config = self.config(ENDLESS)
        other = f'exec {kit.TRAINER} evaluate --config {config} --checkpoint latest'
        result = self.start_on_others(2, other, "--config", config).wait(40)
        self.assert_one_error(result, kit.CONFIG, "rank 1@", "another subcommand than rank 0@")

    def test_a_second_request_after_five_seconds_ends_a_slow_stop_at_once(self):
        config = self.config({**ENDLESS})
        job = self.start(2, "--config", config, wrapper=self.disk_fault("delay_enter=60000000"))
        job.wait_for_output("step 3,")
        for _ in range(2):
            os.kill(job.ranks()[1], signal.SIGUSR1)  # rank 0 is held by its tracer
            time.sleep(6.5)
        result = job.wait(20)
        self.assertEqual(result.code, 128 + signal.SIGUSR1, str(result))
        self.assertNotIn("is saved", result.output)

    def test_a_run_stops_in_time_for_the_end_of_the_job(self):
        config = self.config(ENDLESS)
        end = int(time.time()) + 14
        result = self.run_job(2, "--config", config, env={"LOCKSTEP_JOB_END": str(end)})
        self.assertEqual(result.code, kit.STOPPED, str(result))
        self.assertLess(time.time(), end, str(result))
        self.assertIn("(the end of the job is near; the same command continues the run)", result.output)
        self.assertEqual(len(kit.checkpoints(self.path("run"))), 1)
        again = self.run_job(2, "--config", config, env={"LOCKSTEP_JOB_END": str(int(time.time()))})
        self.assert_one_error(again, kit.CHECKPOINT, "is not saved: the job ends in 0 s")


if __name__ == "__main__":
    kit.main()
