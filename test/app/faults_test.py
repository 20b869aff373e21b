"""Ranks that throw, leave, are killed or stopped (fault_case.py)."""

import os
import signal
import time

import kit
from fault_case import LIMIT, Case


class Throws(Case):
    """An exception on any thread of any rank ends the job."""

    def throws(self, ranks, rank, call, code, told):
        name = f"{call.split(':')[0]}{ranks}{rank}"
        trigger = self.path(name + ".trigger")
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 5, "checkpoint.on_error": "fail",
                              "watchdog.warn_seconds": 5, "watchdog.abort_seconds": 20,
                              "checkpoint.directory": name}, name=name + ".toml")
        job = self.start(ranks, "--config", config, env=self.faulty(rank, call, "throw", trigger=trigger))
        job.wait_for_output("step 3,")
        kit.write(trigger, b"")
        result = self.ends(job, time.monotonic(), name)
        self.assertEqual(result.code, code, f"{name}: {result}")
        self.assertIn("a fault made by the test", result.output, name)
        self.assertTrue(any(f"rank {rank}@" in line and told in line for line in result.errors()), f"{name}: {result}")
        self.assert_newest_is_whole(self.path(name))
        if (rank, call) == (0, "fsync:/step-"):
            self.assertFalse(os.path.exists(self.path(name, "run.lock")), "rank 0 released its directory")

    def cases(self, ranks, victims):
        for rank in victims:
            yield ranks, rank, "new:main", kit.INTERNAL, ""
            yield ranks, rank, "read:train.tfrecord", kit.INTERNAL, ""
            yield ranks, rank, "reduce", kit.INTERNAL, ""
        yield ranks, 0, "fsync:/step-", kit.CHECKPOINT, "step-"

    def test_an_exception_on_any_thread_ends_the_job_and_names_the_rank(self):
        self.records(60)
        self.at_once(self.throws, self.cases(2, [1]))


class Leaves(Case):
    """A rank that leaves in the middle of training with 0 does not make a success, whichever way it goes."""

    def leaves(self, ranks, rank, how):
        name = f"{how}{ranks}{rank}"
        trigger = self.path(name + ".trigger")
        config = self.config({"train.steps": 1_000_000, "checkpoint.every_steps": 5, "checkpoint.directory": name,
                              "watchdog.warn_seconds": 2, "watchdog.abort_seconds": LIMIT}, name=name + ".toml")
        job = self.start(ranks, "--config", config, env=self.faulty(rank, "new:main", how, trigger=trigger))
        job.wait_for_output("step 3,")
        kit.write(trigger, b"")
        # One that finalizes waits in there for the others: the watchdogs end that.
        self.ends(job, time.monotonic(), name, LIMIT)
        self.assert_newest_is_whole(self.path(name))

    def test_a_rank_that_leaves_with_0_does_not_make_a_success(self):
        self.records(60)
        self.at_once(self.leaves, [(2, 1, how) for how in ("exit", "leave", "finalize")])


class Strikes(Case):
    """SIGKILL and SIGSTOP in each phase. A rank is held in the phase, by a call that does not return."""

    class Hold:
        def __init__(self, call=None, after=None, holder=None):
            self.call = call      # does not return ...
            self.after = after    # ... once this was printed
            self.holder = holder  # ... on this rank; else on the victim

    HOLDS = {
        "start": Hold(),
        "mpi": Hold("mpi"),
        "configuration": Hold("open:.toml", holder=0),
        "scan": Hold("open:train.tfrecord"),
        "compile": Hold("new:main", after="training data: "),
        "reduction": Hold("reduce", after=" samples an epoch"),
        "train": Hold(after="step 3,"),
        "evaluate": Hold("read:validation.tfrecord"),
        "save": Hold("fsync:/step-", holder=0),
    }

    def start_held(self, ranks, victim, phase, name):
        """A job, and a rank of it, that has come to the phase."""
        config = self.config({"train.steps": 4 if phase == "save" else 1_000_000, "checkpoint.directory": name,
                              "data.validation": "validation.tfrecord" if phase == "evaluate" else [],
                              "eval.every_epochs": 0.5, "checkpoint.every_steps": 2 if phase == "train" else 0,
                              "watchdog.warn_seconds": 2, "watchdog.abort_seconds": LIMIT}, name=name + ".toml")
        hold = self.HOLDS[phase]
        mark, trigger = self.path(name + ".mark"), self.path(name + ".trigger")
        env = {}
        if hold.call:
            holder = victim if hold.holder is None else hold.holder
            env = self.faulty(holder, hold.call, "hold", mark=mark, trigger=trigger if hold.after else None)
        # On the command line the limits hold before there is a configuration, too.
        job = self.start(ranks, "--config", config, "--watchdog.abort_seconds", str(LIMIT), env=env)
        if hold.after:
            job.wait_for_output(hold.after)
            kit.write(trigger, b"")
        if hold.call:
            job.wait_for(lambda: os.path.exists(mark), f"{name}: the phase")
        job.wait_for(lambda: len(job.ranks()) == ranks, f"{name}: all ranks")
        return job

    def strikes(self, ranks, victim, phase, number):
        name = f"{phase}.{number.name}.{ranks}.{victim}"
        job = self.start_held(ranks, victim, phase, name)
        os.kill(job.ranks()[victim], number)
        # Ranks that wait have their limit from when they began to; a rank that tells who is missing takes a little.
        result = self.ends(job, time.monotonic(), name, LIMIT)
        if number == signal.SIGKILL:
            self.assertEqual(result.code, 128 + signal.SIGKILL, f"{name}: {result}")
        else:
            # Rank 0 may first find that its own last save takes too long.
            expected = (kit.STALLED, kit.CHECKPOINT) if phase == "save" else (kit.STALLED,)
            # With a rank suspended while MPI starts, Open MPI 4.1's mpirun may crash, or hang and be ended.
            if phase in ("start", "mpi"):
                expected = (kit.STALLED, 1, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGSEGV)
            self.assertIn(result.code, expected, f"{name}: {result}")
            if self.HOLDS[phase].holder in (None, victim):
                named = rf"rank {victim}(@\S+)? (has not arrived|is suspended|did not|is silent)"
                self.assertRegex("\n".join(result.errors()), named, name)
        self.assert_newest_is_whole(self.path(name))

    def setUp(self):
        super().setUp()
        self.records(60)
        self.records(60, "validation.tfrecord", seed=1)  # some for each of four ranks


class Phases(Strikes):
    def test_a_rank_killed_or_stopped_in_any_phase_ends_the_job(self):
        self.at_once(self.strikes, [(2, 1, phase, number) for phase in ("scan", "train", "evaluate", "save")
                                    for number in (signal.SIGKILL, signal.SIGSTOP)])


class SlowThrows(Throws):
    def test_an_exception_on_any_thread_ends_the_job_and_names_the_rank(self):
        self.records(60)
        self.at_once(self.throws, [case for ranks in (2, 3, 4) for case in self.cases(ranks, range(ranks))])


class SlowLeaves(Leaves):
    def test_a_rank_that_leaves_with_0_does_not_make_a_success(self):
        self.records(60)
        self.at_once(self.leaves, [(ranks, rank, how) for ranks in (2, 3, 4) for rank in range(ranks)
                                   for how in ("exit", "leave", "finalize")])


class SlowPhases(Strikes):
    """Each rank of two, three and four, in each phase."""

    def strike_everywhere(self, ranks, number):
        self.at_once(self.strikes, [(ranks, victim, phase, number) for victim in range(ranks) for phase in self.HOLDS])

    def test_one_of_two_ranks_killed(self):
        self.strike_everywhere(2, signal.SIGKILL)

    def test_one_of_two_ranks_stopped(self):
        self.strike_everywhere(2, signal.SIGSTOP)

    def test_one_of_three_ranks_killed(self):
        self.strike_everywhere(3, signal.SIGKILL)

    def test_one_of_three_ranks_stopped(self):
        self.strike_everywhere(3, signal.SIGSTOP)

    def test_one_of_four_ranks_killed(self):
        self.strike_everywhere(4, signal.SIGKILL)

    def test_one_of_four_ranks_stopped(self):
        self.strike_everywhere(4, signal.SIGSTOP)


if __name__ == "__main__":
    kit.main()
