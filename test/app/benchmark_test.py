"""The synthetic benchmark, started and read as tf_cnn_benchmarks is."""

import json
import os
import re

import kit

SMALL = ["--model", "cifar10_cnn", "--batch_size", "4", "--num_batches", "12", "--num_warmup_batches=2", "--device", "cpu"]
CIFAR10_CNN_PARAMETERS = 1_756_426
STEP = re.compile(r"^(\d+)\timages/sec: (\d+\.\d) \+/- (\d+\.\d) \(jitter = (\d+\.\d)\)(?:\t(\d+\.\d{3}))?$", re.M)


class Benchmark(kit.TestCase):
    def benchmark(self, ranks, *more):
        result = self.run_job(ranks, *SMALL, *more)
        self.assertEqual(result.code, kit.OK, result)
        return result

    def test_banner_steps_and_total_are_printed_and_nothing_is_saved(self):
        for ranks in (0, 2):
            result = self.benchmark(ranks, "--optimizer=momentum", "--benchmark_log_dir", "logs")
            count = max(ranks, 1)
            for line in ("Model:       cifar10_cnn", f"Batch size:  {4 * count} global", "             4 per device",
                         "Num batches: 12", "Optimizer:   momentum", "Running warm up", "Done warm up",
                         "Step\tImg/sec\ttotal_loss"):
                self.assertEqual(result.output.splitlines().count(line), 1, f"{line}\n{result}")
            steps = STEP.findall(result.output)
            self.assertEqual([step[0] for step in steps], ["1", "10"], result)
            total = re.search(r"^-{64}\ntotal images/sec: (\d+\.\d\d)\n-{64}$", result.output, re.M)
            self.assertTrue(total, result)
            with open(self.path("logs", "benchmark.json")) as file:
                report = json.load(file)
            self.assertEqual((report["ranks"], len(report["step_seconds"])), (count, 12))
            self.check_steps_alone(result, report)
            mean = 4 * count * 12 / sum(report["step_seconds"])
            self.assertAlmostEqual(float(total[1]), mean, delta=0.01)
            self.assertEqual([name for name in os.listdir(self.path()) if name.startswith("runs")], [])

    def check_steps_alone(self, result, report):
        alone, ranks = report["alone"], report["ranks"]
        self.assertEqual(len(alone["rank_seconds"]), ranks)
        rate = sum(4 / seconds for seconds in alone["rank_seconds"])
        self.assertAlmostEqual(alone["images_per_second"], rate, delta=1e-6 * rate)
        self.assertAlmostEqual(report["efficiency"], report["images_per_second"] / rate, delta=1e-6)
        line = f"efficiency: {100 * report['efficiency']:.1f} % of {rate:.2f} images/sec, the ranks' own when they"
        self.assertEqual(result.count(line), 1 if ranks > 1 else 0, f"{line}\n{result}")
        ready = [bucket["ready_seconds"] for bucket in alone["buckets"]]
        self.assertEqual(ready, sorted(ready))
        self.assertGreater(ready[0], 0)
        self.assertLess(ready[-1], alone["rank_seconds"][0])
        gradients = sum(bucket["gradients"] for bucket in alone["buckets"])
        self.assertAlmostEqual(gradients, CIFAR10_CNN_PARAMETERS, delta=100)  # with the gaps between arrays
        self.assertGreater(alone["buckets"][-1]["others"], 0)

    def test_ranks_may_be_left_unmeasured_alone_and_must_be_where_the_network_needs_all(self):
        for option in ("--num_alone_batches=0", "--train.sync_batch_norm=true"):
            result = self.benchmark(2, option, "--benchmark_log_dir", "logs")
            self.assertEqual(result.count("efficiency"), 0, result)
            with open(self.path("logs", "benchmark.json")) as file:
                self.assertNotIn("alone", json.load(file))

    def test_the_loss_has_weight_decay_in_it(self):
        plain, decayed = (float(STEP.findall(self.benchmark(0, f"--weight_decay={decay}").output)[0][4])
                          for decay in ("0", "0.1"))
        self.assertAlmostEqual(plain, 2.303, delta=0.2)  # of ten classes
        self.assertGreater(decayed, plain + 1)

    def test_a_forward_pass_alone(self):
        result = self.benchmark(2, "--forward_only")
        self.assert_once(result, "Mode:        forward only")
        self.assertEqual([step[0] for step in STEP.findall(result.output)], ["1", "10"], result)

    def test_flags_of_parameter_servers_are_refused_once(self):
        result = self.run_job(2, *SMALL, "--job_name=worker")
        self.assert_one_error(result, kit.CONFIG, "--job_name: not for this program")

    def test_nothing_is_printed_in_the_warm_up_and_no_directory_of_a_run_is_looked_at(self):
        """A file in place of the directory would end a run that looked into it."""
        kit.write(self.path("runs/cifar10_cnn"), "no directory")
        for ranks in (0, 2):
            result = self.benchmark(ranks, "--num_alone_batches=0")
            self.assertIn("Running warm up\nDone warm up\n", result.output)
            self.assertNotIn("checkpoint", result.output)

    def test_one_image_is_a_batch_of_inception(self):
        result = self.run_job(0, "--model=inception3", "--batch_size=1", "--num_batches=1", "--num_warmup_batches=0",
                              "--device=cpu", "--weight_decay=0", "--noxla", "--nodistortions", "--eval=False")
        self.assertEqual(result.code, kit.OK, result)
        self.assertAlmostEqual(float(STEP.findall(result.output)[0][4]), 6.9, delta=1)  # of 1001 classes, one head


if __name__ == "__main__":
    kit.main()
