"""The model of scripts/bench/scaling.py against cases that can be solved by hand."""

import contextlib
import dataclasses
import io
import itertools
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/bench"))

import scaling  # noqa: E402
import shaped_links  # noqa: E402
from scaling import Bucket, Job, Profile, simulate  # noqa: E402

# Two buckets of 1,000 bytes, complete after 1 s and 3 s; the update takes 1 s more.
PROFILE = Profile([Bucket(250, 0, 1.0), Bucket(200, 50, 3.0)], 4.0)


class Model(unittest.TestCase):
    def seconds(self, profile=PROFILE, **job):
        return simulate(profile, Job(**{"ranks": 2, "bytes_per_second": 1e30, **job})).seconds

    def test_a_link_without_limits_leaves_computing_alone(self):
        self.assertAlmostEqual(self.seconds(ranks=1000), 4)

    def test_one_rank_sends_nothing(self):
        self.assertAlmostEqual(self.seconds(ranks=1, bytes_per_second=1, latency_seconds=9), 4)

    def test_a_rank_sends_twice_the_bytes_but_for_its_own_share(self):
        for ranks, sent in ((1, 0), (2, 1000), (4, 1500)):
            self.assertAlmostEqual(Job(ranks, 1.0).sent_bytes(1000), sent)
            self.assertAlmostEqual(Job(ranks, 1.0).link_bytes(1000), sent)

    def test_ranks_of_a_host_send_on_its_one_link_what_is_for_other_hosts(self):
        self.assertAlmostEqual(Job(4, 1.0, ranks_a_host=4).link_bytes(1000), 0)
        self.assertAlmostEqual(Job(4, 1.0, ranks_a_host=2).link_bytes(1000), 2 * 2 * 500)  # two halves, two ranks

    def test_in_two_stages_a_host_sends_what_one_rank_would(self):
        for ranks_a_host in (1, 4, 64):
            two = Job(2 * ranks_a_host, 1.0, ranks_a_host=ranks_a_host, algorithm="stages")
            self.assertAlmostEqual(two.link_bytes(1000), 1000)
            self.assertAlmostEqual(two.sent_bytes(1000), 1000 / ranks_a_host)
        self.assertAlmostEqual(Job(64, 1.0, ranks_a_host=64, algorithm="stages").link_bytes(1000), 0)
        self.assertAlmostEqual(Job(1024, 1.0, ranks_a_host=64, algorithm="stages").link_bytes(1000), 2 * 15 / 16 * 1000)

    def test_in_two_stages_hosts_take_turns_and_not_ranks(self):
        self.assertAlmostEqual(self.seconds(ranks=256, ranks_a_host=64, algorithm="stages", latency_seconds=0.01),
                               3 + 6 * 0.01 + 1)

    def test_one_bucket_at_the_end_adds_its_whole_time(self):
        single = Profile([Bucket(250, 0, 3.0)], 4.0)
        self.assertAlmostEqual(self.seconds(single, bytes_per_second=500), 3 + 2 + 1)

    def test_only_the_last_bucket_shows_where_the_others_fit_under_computing(self):
        self.assertAlmostEqual(self.seconds(bytes_per_second=1000), 3 + 1 + 1)

    def test_a_slow_link_is_never_idle_after_the_first_bucket(self):
        self.assertAlmostEqual(self.seconds(bytes_per_second=100), 1 + 10 + 10 + 1)

    def test_each_message_of_a_ring_has_its_latency(self):
        self.assertAlmostEqual(self.seconds(ranks=4, latency_seconds=0.01), 3 + 6 * 0.01 + 1)

    def test_a_ring_of_nccl_has_its_messages_within_hosts_and_between_them(self):
        ring = Job(32, 1.0, 0.01, ranks_a_host=8, algorithm="ring", local_latency_seconds=0.001)
        self.assertAlmostEqual(ring.latency(), 2 * 31 / 32 * (4 * 0.01 + 28 * 0.001))
        self.assertAlmostEqual(ring.link_bytes(1000), 2 * 3 / 4 * 1000)
        self.assertAlmostEqual(dataclasses.replace(ring, ranks=8).latency(), 2 * 7 * 0.001)

    def test_a_tree_of_nccl_has_a_message_a_level_and_chains_within_hosts(self):
        tree = Job(32, 1.0, 0.01, ranks_a_host=8, algorithm="tree", local_latency_seconds=0.001)
        self.assertAlmostEqual(tree.latency(), 2 * (2 * 0.01 + 7 * 0.001))
        self.assertAlmostEqual(dataclasses.replace(tree, ranks=1024).latency(), 2 * (7 * 0.01 + 7 * 0.001))

    def test_of_nccl_the_faster_algorithm_counts(self):
        for latency, expected in ((0.1, "tree"), (0.0, "ring")):
            job = Job(1024, 1e30, latency, ranks_a_host=8, algorithm="nccl")
            step, algorithm = scaling.fastest(PROFILE, job)
            self.assertEqual(algorithm, expected)
            self.assertAlmostEqual(step.seconds, 3 + (2 * 7 * latency if latency else 0) + 1)

    def test_sums_within_a_host_move_all_ranks_bytes_through_its_memory(self):
        # 4 ranks, 1,000 bytes each, read and written at 16,000 bytes/s: half a second a bucket, on the cores.
        self.assertAlmostEqual(self.seconds(ranks=4, ranks_a_host=4, algorithm="stages", memory_bytes_per_second=16e3),
                               3 + 0.5 + 0.5 + 1)
        self.assertAlmostEqual(self.seconds(ranks=1, algorithm="stages", memory_bytes_per_second=1), 4)

    def test_what_limits_a_step_is_what_it_would_lose(self):
        job = Job(2, 1000.0, 0.01)
        self.assertEqual(scaling.what_limits(PROFILE, job), "links 1,000.00 ms, messages 20.00 ms")
        self.assertEqual(scaling.what_limits(PROFILE, Job(2, 1e30)), "nothing")

    def test_narrow_gradients_travel_as_half_the_bytes_and_the_rest_as_it_is(self):
        self.assertEqual([b.wire_bytes("bf16") for b in PROFILE.buckets], [500, 600])
        self.assertAlmostEqual(self.seconds(bytes_per_second=100, wire="bf16"), 1 + 5 + 6 + 1)

    def test_work_on_the_cores_holds_up_computing_and_at_the_end_the_sum(self):
        # 0.5 s of work for the first bucket while computing goes on, 0.5 s for the last when it has ended.
        self.assertAlmostEqual(self.seconds(host_seconds_per_byte=0.5e-3), 3 + 0.5 + 0.5 + 1)

    def test_steps_grow_with_ranks_and_shrink_with_the_link(self):
        ranks = [self.seconds(ranks=n, bytes_per_second=300, latency_seconds=1e-3) for n in (1, 2, 16, 1024)]
        links = [self.seconds(ranks=16, bytes_per_second=rate) for rate in (100, 300, 1000, 1e9)]
        self.assertEqual(ranks, sorted(ranks))
        self.assertEqual(links, sorted(links, reverse=True))

    def test_another_machine_has_the_same_step_in_other_units(self):
        half = PROFILE.scaled_to(2.0)
        self.assertAlmostEqual(self.seconds(half, bytes_per_second=200),
                               self.seconds(PROFILE, bytes_per_second=100) / 2)


class Plan(unittest.TestCase):
    """The cases with which src/comm/transport/bucket_plan.cc is tested."""

    def buckets(self, wire_elements, marks):
        buckets, begin = [], 0
        for end, microseconds in (mark.split(":") for mark in marks):
            gradients = min(int(end), wire_elements) - min(begin, wire_elements)
            buckets.append(Bucket(gradients, int(end) - begin - gradients, float(microseconds) * 1e-6))
            begin = int(end)
        return buckets

    def test_plans_are_those_of_the_program(self):
        cases = pathlib.Path(__file__).resolve().parent.parent / "comm/bucket_plans.txt"
        plans = 0
        for words in (line.split() for line in cases.read_text().splitlines()):
            if words[0] == "case":
                name, (latency, rate, launch) = words[1], map(float, words[2:5])
                most_bytes, wire_bytes, wire_elements = map(int, words[5:])
            elif words[0] == "marks":
                buckets = self.buckets(wire_elements, words[1:])
            elif words[0] == "plan":
                planned = scaling.plan(buckets, {2: "bf16", 4: "float32"}[wire_bytes],
                                       (latency * 1e-6, rate * 1e9), launch * 1e-6, most_bytes)
                ends = itertools.accumulate(b.gradients + b.others for b in planned)
                self.assertEqual(list(ends), list(map(int, words[1:])), name)
                plans += 1
            elif words[0] == "cost":
                latency, rate = scaling.assumed_cost(int(words[1]), int(words[2]), words[3] == "ring")
                self.assertAlmostEqual(latency, float(words[4]) * 1e-6, 8, words)
                self.assertAlmostEqual(1e6 / rate, float(words[5]) * 1e-6, 9, words)
        self.assertGreater(plans, 5)

    def test_a_planned_step_is_shorter_than_with_one_bucket(self):
        profile = Profile([Bucket(2_500_000, 0, 1.0), Bucket(2_000_000, 500_000, 3.0)], 4.0)
        whole = Profile([Bucket(4_500_000, 500_000, 3.0)], 4.0)
        job = Job(16, 25e9, ranks_a_host=8, algorithm="tree")
        self.assertLess(simulate(scaling.planned(profile, job), job).seconds, simulate(whole, job).seconds)
        self.assertIn("| 16 | 2 | 2 | ", scaling.table(profile, [16], [1], job, plans=True))


class Report(unittest.TestCase):
    def load(self, report):
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump(report, file)
            file.flush()
            return scaling.load_profile(file.name)

    def test_the_step_is_that_of_the_slowest_rank(self):
        buckets = [dataclasses.asdict(b) for b in PROFILE.buckets]
        self.assertEqual(self.load({"alone": {"rank_seconds": [4.0, 8.0], "buckets": buckets}}), PROFILE.scaled_to(8.0))

    def test_a_report_without_steps_alone_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "says nothing of steps alone"):
            self.load({"ranks": 2})

    def test_the_table_has_a_row_a_job_and_a_column_a_link(self):
        text = scaling.table(PROFILE, [2, 1024], [8e-7, 8e9], Job(1, 1.0))
        self.assertIn("| 2 | 2 | 22,000.0 ms, 18.2 % | 4,000.0 ms, 100.0 % |", text)
        self.assertEqual(len(text.splitlines()), 4)


class ShapedLinks(unittest.TestCase):
    """What scripts/bench/shaped_links.py makes of its measurements."""

    WORK = 2e-7  # seconds a byte

    def measured(self, kind, tcp, error=1.0):
        big = Profile([Bucket(2_500_000, 0, 1.0), Bucket(2_000_000, 500_000, 3.0)], 4.0)
        seconds = simulate(big, shaped_links.job(kind, tcp, self.WORK)).seconds * error
        return shaped_links.Measured(tcp, big, seconds, 10e6)

    def test_the_run_without_shaping_gives_the_work_of_the_cores(self):
        for ranks, transport in ((1, "auto"), (2, "auto"), (2, "mpi")):
            kind = shaped_links.Kind(0, "float32", ranks, transport)
            self.assertAlmostEqual(shaped_links.work_per_byte(kind, self.measured(kind, 1e30)) / self.WORK, 1, places=6)

    def test_the_median_of_rounds_is_taken_by_column(self):
        kind = shaped_links.Kind(1, "float32", 1, "auto")
        rounds = [dataclasses.replace(self.measured(kind, tcp), seconds=seconds)
                  for tcp, seconds in ((1e6, 9.0), (3e6, 7.0), (2e6, 8.0))]
        self.assertEqual((shaped_links.median(rounds).tcp, shaped_links.median(rounds).seconds), (2e6, 8.0))

    def test_the_report_has_the_error_of_the_prediction(self):
        free, shaped = (shaped_links.Kind(gbits, "float32", 2, "auto") for gbits in (0, 1))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            shaped_links.report({free: self.measured(free, 1e30), shaped: self.measured(shaped, 1e6, error=1.25)})
        rows = output.getvalue().splitlines()
        self.assertEqual(len(rows), 4)
        self.assertIn("gives 200.00 s/GB", rows[2])
        self.assertTrue(rows[3].endswith("| -20.0 % |"), rows[3])


if __name__ == "__main__":
    unittest.main()
