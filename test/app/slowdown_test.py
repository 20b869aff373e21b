"""A run that becomes slower says so once, and whose work the time goes into: not the ranks that wait."""

import re
import statistics

import kit

STEP = re.compile(r": step (\d+), .*; ([\d.]+) sec/batch\)")
WARNING = re.compile(r"warning: step (\d+): a step takes [\d.]+ s, [\d.]+ s at best; [\d.]+ s more go into (.*)")
STEADY = 25  # steps before the fault
PACE = "3"  # milliseconds that each layer sleeps on every rank, so that a step takes about as long whatever else runs
SLOW = 300  # by which the fault makes steps longer, roughly

# The call that takes longer, by how many milliseconds each time, and what that is called.
READS = ("read:train.tfrecord", SLOW // 2, "waiting for data")
COMPUTE = ("compute", SLOW // 12, "computing")
NETWORK = ("exchange", SLOW // 4, "the reduction")
SOCKETS = ("send", SLOW // 8, "the reduction")


def steps_to_report(output, step):
    """From the first of the lasting slow steps to the one at which the warning stands."""
    seconds = {int(number): float(spent) for number, spent in STEP.findall(output)}
    usual = statistics.median(spent for number, spent in seconds.items() if number < STEADY)
    longer = usual + SLOW / 4000
    slow = [all(seconds.get(number + i, 0) > longer for i in range(3)) for number in range(STEADY, step + 1)]
    return step - STEADY - slow.index(True) + 1


# TCP alone, so that a slow send() is met.
SOCKETS_ALONE = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]


class Slow(kit.TestCase):
    def warnings_of(self, victim, fault, transport="auto", flags=(), *, ranks=3, expected):
        """[(step, text)] and the output of a job that suffers the fault after a while, some steps after a warning whose
        text matches `expected`."""
        call, delay, _ = fault
        self.records(96)
        case = f"{call}-{victim}-{ranks}".replace(":", "-")
        config = self.config({"train.steps": 1_000_000, "train.batch_size": 2, "data.workers": 1,
                              "checkpoint.directory": case, "comm.transport": transport, "log.jsonl": "",
                              "log.tensorboard": False})
        trigger = self.path("trigger-" + case)
        job = self.start(ranks, "--config", config, flags=["--oversubscribe", *flags],
                         env=self.faulty(victim, call, f"slow:{delay}", trigger=trigger, pace=PACE))
        try:
            job.wait_for_output(f": step {STEADY},")
            kit.write(trigger, b"")
            matching = lambda: [step for step, text in WARNING.findall(job.output()) if re.search(expected, text)]
            job.wait_for(matching, f"a warning of {expected}")
            job.wait_for_output(f": step {int(matching()[0]) + 5},")
        finally:
            job.kill()
        return WARNING.findall(job.output()), job.output()

    def assert_named(self, victim, fault, *more):
        """Three ranks of which one becomes slow: it is named once and correctly within 20 steps."""
        # Other programs may slow all ranks down, which is reported without a name.
        warnings, output = self.warnings_of(victim, fault, *more, expected=" on rank ")
        named = [(step, text) for step, text in warnings if " on rank " in text]
        self.assertEqual(len(named), 1, output)
        self.assertRegex(named[0][1], rf"^{fault[2]} on rank {victim}@\S+$", output)
        self.assertLessEqual(steps_to_report(output, int(named[0][0])), 20, output)

    def test_each_rank_is_named_for_each_fault(self):
        for fault, *more in ((READS,), (COMPUTE,), (NETWORK, "mpi"), (SOCKETS, "mpi", SOCKETS_ALONE)):
            for victim in range(3):
                with self.subTest(fault=fault[0], rank=victim):
                    self.assert_named(victim, fault, *more)

    def test_no_rank_is_named_where_the_network_is_slow_for_all(self):
        warnings, output = self.warnings_of("all", SOCKETS, "mpi", SOCKETS_ALONE, expected="^the reduction")
        self.assertNotIn(" on rank ", str(warnings), output)

    def test_of_two_ranks_none_is_named_for_its_network(self):
        warnings, output = self.warnings_of(1, NETWORK, "mpi", ranks=2, expected="^the reduction")
        self.assertNotIn(" on rank ", str(warnings), output)

    def test_nothing_is_reported_in_a_steady_run(self):
        self.records(96)
        config = self.config({"train.steps": 500, "train.batch_size": 2})
        result = self.train(3, config, flags=["--oversubscribe"], env=self.faulty(0, pace=PACE))
        self.assertEqual(WARNING.findall(result.output), [], str(result))


if __name__ == "__main__":
    kit.main()
