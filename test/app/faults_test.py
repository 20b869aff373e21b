"""Fault injection: what becomes of a job when something breaks, whatever breaks, on whichever rank, in whichever phase.

Faults inside the program are made by fault_shim.cc, a library that is preloaded into the real one. What must hold each
time: the job ends within its limit and ten seconds, with the documented code and a message that names the rank; no
process stays; nothing claims a save that is not there; the newest checkpoint is whole. The classes Slow... do the same
on every rank of two, three and four; each can be run by itself: ctest -R "faults, slow kills".

Kinds of faults known from other trainers, and where each is tested ("faults" is this file):

  saving
    a save stalls the job                             saving: steps go on while a save waits; a best state
    saving depends on message sizes                   ranks: saves between steps ...; a network of any width
    a background write fails unheard                  faults: Disks; saving: a last save that fails; train: metrics
    disk full, quota, read-only, failing fsync        faults: Disks; saving: a full disk
    killed during a save, then resumed from a stump   faults: Kills, Resumes; crash: what a kill ... leaves; directory
    file locks that fail                              checkpoint: neither saving nor reading needs file locks
    limits of the file format, several threads        checkpoint: schema and writer cases; io: hdf5 cases
    a slow save makes other ranks time out            faults: a last save that is slower than the limits of training
    the last steps are in no checkpoint               saving: the last save is waited for
    the wrong "newest", or a new run eats an old one  directory: newest is the highest step; resume never
  resuming
    data order and random state restart               resume: stopping ... changes no bit
    slots lost, learning rate wrong                   train: a whole file that lacks one array; resume: the rate of each
                                                      step; faults: slots of another optimizer
    shapes that do not fit are skipped                errors: checkpoints of another model
  starting
    opaque failures at the start                      check; faults: Phases; data that one rank does not see
    several ranks, one device                         backend and dist: device placement cases
    every process is rank 0 of 1                      faults: processes that do not know each other
    the wrong network interface                       check: an interface that does not exist; faults: SlowStarts
    slots and root                                    all of these tests run as root with more ranks than cores;
                                                      faults: SlowStarts
  hanging
    one rank fails, the others wait                   faults: Throws, Phases; app: threads that fail together
    an error, but exit code 0                         faults: Leaves, and every case checks its code; errors
    one rank has fewer batches                        train: data of any number of samples, run plan cases; ranks
    fewer files than ranks, empty data                errors: data that are missing, empty or something else
    a rank skips a bad batch alone                    faults: Waits; train: bad records
    a stall that nobody notices                       faults: Phases, Waits; failure; crash: a suspended rank
  Slurm
    the warning signal never arrives                  slurm: stopped before its limit
    one second after SIGTERM                          faults: SlowStops; slurm: cancelled jobs; resume: any stop signal
    a requeued job starts from zero                   slurm: requeued and finishes; faults: a restart with nothing there
    task counts and reality differ                    dist: launcher cases; faults: counts of Slurm under mpirun
"""

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

GRACE = 10  # seconds beyond a limit
LIMIT = 5


class Case(kit.TestCase):
    def gone(self, job, what):
        """The job has ended by itself: none of its ranks may be left, not for long."""
        end = time.monotonic() + 5
        while job.ranks():
            self.assertLess(time.monotonic(), end, f"{what}: ranks are left\n{job.output()}")
            time.sleep(0.05)

    def ends(self, job, since, what, limit=0):
        """Waits for the end, which must come within limit + GRACE of `since`; returns the result."""
        try:
            code = job.process.wait(limit + GRACE + 30)
        except subprocess.TimeoutExpired:
            code = "timeout"
        seconds = time.monotonic() - since
        self.gone(job, what)
        result = kit.Result(code, job.output(), seconds)
        self.assertNotIn(code, ("timeout", 0), f"{what}: {result}")
        self.assertLess(seconds, limit + GRACE, f"{what}: {result}")
        self.assertNotIn("the state is saved", result.output, what)
        return result

    def assert_newest_is_whole(self, directory):
        if os.path.lexists(os.path.join(directory, "latest")):
            result = self.run_job(0, "inspect", "--verify", os.path.join(directory, "latest"))
            self.assertEqual(result.code, kit.OK, str(result))

    def at_once(self, work, cases, jobs=3):
        """Runs work(*case) for all cases, several beside each other: for the most part they wait."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for case, future in [(case, pool.submit(work, *case)) for case in cases]:
                with self.subTest(case=case):
                    future.result()


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
            job.wait_for_output("checkpoint of step")
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


class SlowKills(Kills):
    def test_the_one_checkpoint_that_is_kept_is_whole_after_kills(self):
        self.killed_while_saving(50, 4)


class SlowDamage(Damage):
    def test_a_changed_byte_is_found_wherever_it_is(self):
        self.damaged(3000)


if __name__ == "__main__":
    kit.main()
