"""Fault injection: what becomes of a job when something breaks, whatever breaks, on whichever rank, in whichever phase.

Faults inside the program are made by fault_shim.cc, a library that is preloaded into the real one. What must hold each
time: the job ends within its limit and ten seconds, with the documented code and a message that names the rank; no
process stays; nothing claims a save that is not there; the newest checkpoint is whole. The classes Slow... do the same
on every rank of two, three and four; each can be run by itself: ctest -R "faults, slow phases".

Kinds of faults known from other trainers, and where each is tested:

  saving
    a save stalls the job                             saving: steps go on while a save waits; a best state
    saving depends on message sizes                   ranks: saves between steps ...; a network of any width
    a background write fails unheard                  file_faults: Disks; saving: a last save that fails; train: metrics
    disk full, quota, read-only, failing fsync        file_faults: Disks; saving: a full disk
    killed during a save, then resumed from a stump   file_faults: Kills, Resumes; crash: what a kill ... leaves; directory
    file locks that fail                              checkpoint: neither saving nor reading needs file locks
    limits of the file format, several threads        checkpoint: schema and writer cases; io: hdf5 cases
    a slow save makes other ranks time out            file_faults: a last save that is slower than the limits of training
    the last steps are in no checkpoint               saving: the last save is waited for
    the wrong "newest", or a new run eats an old one  directory: newest is the highest step; resume never
  resuming
    data order and random state restart               resume: stopping ... changes no bit
    slots lost, learning rate wrong                   train: a whole file that lacks one array; resume: the rate of each
                                                      step; start_faults: slots of another optimizer
    shapes that do not fit are skipped                errors: checkpoints of another model
  starting
    opaque failures at the start                      check; faults: Phases; start_faults: data that one rank does not see
    several ranks, one device                         backend and dist: device placement cases
    every process is rank 0 of 1                      start_faults: processes that do not know each other
    the wrong network interface                       check: an interface that does not exist; start_faults: SlowStarts
    slots and root                                    all of these tests run as root with more ranks than cores;
                                                      start_faults: SlowStarts
  hanging
    one rank fails, the others wait                   faults: Throws, Phases; app: threads that fail together
    an error, but exit code 0                         faults: Leaves, and every case checks its code; errors
    one rank has fewer batches                        train: data of any number of samples, run plan cases; ranks
    fewer files than ranks, empty data                errors: data that are missing, empty or something else
    a rank skips a bad batch alone                    start_faults: Waits; train: bad records
    a stall that nobody notices                       faults: Phases; start_faults: Waits; failure; crash: a suspended rank
  Slurm
    the warning signal never arrives                  slurm: stopped before its limit
    one second after SIGTERM                          start_faults: SlowStops; slurm: cancelled jobs; resume: any stop signal
    a requeued job starts from zero                   slurm: requeued and finishes; start_faults: a restart with nothing there
    task counts and reality differ                    dist: launcher cases; start_faults: counts of Slurm under mpirun
"""

import concurrent.futures
import os
import subprocess
import time

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
