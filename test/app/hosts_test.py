"""Several hosts: network namespaces of this machine, each with its own host name, between which MPI uses TCP."""

import os
import shutil
import signal
import sys

import numpy

import kit

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts/bench"))
import virtual_hosts

TWO_STAGES = "gradients are summed in two stages: in memory that the ranks of a host share, then over MPI between "


class OnHosts(kit.TestCase):
    hosts_count = 3

    @classmethod
    def setUpClass(cls):
        cls.hosts = virtual_hosts.Hosts(cls.hosts_count)
        cls.enterClassContext(cls.hosts)

    def setUp(self):
        super().setUp()
        self.records(60)

    def start_on(self, ranks, config, overrides=None):
        options = [part for k, v in (overrides or {}).items() for part in ("--" + k, str(v))]
        command, env = self.hosts.mpirun(ranks, [kit.TRAINER, "--config", config, *options])
        return self.start_command(command, env=env)

    def train_on(self, ranks, config, overrides=None):
        result = self.start_on(ranks, config, overrides).wait()
        self.assertEqual(result.code, kit.OK, str(result))
        return result

    def model(self, directory):
        return {name: value for name, value in kit.datasets(self.path(directory, "latest")).items()
                if name.startswith("model/")}


class Sums(OnHosts):
    def test_ranks_on_several_hosts_give_the_weights_of_one_host(self):
        plans = {(1, 1): "gradients are summed over MPI by 2 ranks, each on a host of its own",
                 (2, 2): TWO_STAGES + "2 hosts with 2 ranks each",
                 (1, 1, 1): "gradients are summed over MPI by 3 ranks, each on a host of its own",
                 (2, 1): TWO_STAGES + "2 hosts with 1 to 2 ranks"}
        for ranks, plan in plans.items():
            config = self.config({"train.batch_size": 12 // sum(ranks)})
            self.train(sum(ranks), config, {"checkpoint.directory": "one"})
            result = self.train_on(ranks, config, {"checkpoint.directory": "several"})
            self.assert_once(result, plan)
            one, several = self.model("one"), self.model("several")
            for name in one:
                error = numpy.linalg.norm(several[name] - one[name])
                self.assertLessEqual(error, 1e-5 * numpy.linalg.norm(one[name]), f"{ranks}: {name}")
            shutil.rmtree(self.path("one"))
            shutil.rmtree(self.path("several"))

    def test_a_run_on_two_hosts_that_stops_and_resumes_is_the_same_to_the_bit(self):
        config = self.config({"train.batch_size": 4, "train.steps": 10, "comm.bucket_mb": 0.01})
        self.train_on((2, 1), config, {"checkpoint.directory": "whole"})
        self.train_on((2, 1), config, {"checkpoint.directory": "parts", "train.steps": 6})
        self.train_on((2, 1), config, {"checkpoint.directory": "parts"})
        whole, parts = self.model("whole"), self.model("parts")
        for name in whole:
            numpy.testing.assert_array_equal(parts[name], whole[name], name)


    def test_the_bytes_that_leave_a_host_do_not_depend_on_its_ranks_and_are_halved_by_16_bits(self):
        config = self.config({
            "model.name": "wide_mlp", "model.classes": 2, "model.vocabulary": 124, "model.max_ids": 16,
            "model.image_size": None, "model.hidden": [1024, 1024], "data.format": "synthetic", "data.train": None,
            "data.normalize": "none", "train.batch_size": 2, "log.every_steps": 100, "checkpoint.every_seconds": 3600})
        few, many = 5, 25

        def bytes_of_a_step(ranks, dtype):
            sent = []
            for steps in (few, many):
                before = self.hosts.sent_bytes(0)
                self.train_on((ranks, ranks), config, {"train.steps": steps, "comm.gradient_dtype": dtype,
                                                       "checkpoint.directory": f"{ranks}.{dtype}.{steps}"})
                sent.append(self.hosts.sent_bytes(0) - before)
            return (sent[1] - sent[0]) / (many - few)

        one = bytes_of_a_step(1, "float32")
        for ranks in (2, 4):
            self.assertAlmostEqual(bytes_of_a_step(ranks, "float32") / one, 1, delta=0.03)
        self.assertAlmostEqual(bytes_of_a_step(2, "bf16") / one, 0.5, delta=0.02)


class SlowEnds(OnHosts):
    hosts_count = 2

    def endless(self):
        config = self.config({"train.batch_size": 3, "train.steps": 1_000_000, "comm.bucket_mb": 0.01, "log.jsonl": "",
                              "log.every_steps": 50, "watchdog.warn_seconds": 2, "watchdog.abort_seconds": 6})
        job = self.start_on((2, 2), config)
        job.wait_for_output(": step 50,")
        return job

    def test_a_rank_that_is_killed_on_either_host_ends_the_job(self):
        for rank in (1, 3):
            job = self.endless()
            os.kill(job.ranks()[rank], signal.SIGKILL)
            result = job.wait(30)
            self.assertEqual(result.code, 137, str(result))
            self.assertRegex(result.output, rf"rank {rank} with PID .* exited on signal 9")

    def test_a_rank_that_is_suspended_on_either_host_is_named(self):
        for rank in (1, 2, 3):
            job = self.endless()
            os.kill(job.ranks()[rank], signal.SIGSTOP)
            result = job.wait(60)
            self.assertEqual(result.code, kit.STALLED, str(result))
            self.assertRegex(result.output, rf"error: .*rank {rank}@host{rank // 2} (has not arrived|is silent)")
            self.assertNotIn("look at the network between", result.output)

    def test_a_host_whose_interface_is_down_is_named_with_the_network(self):
        job = self.endless()
        self.hosts.set_interface(1, "down")
        self.addCleanup(self.hosts.set_interface, 1, "up")
        job.wait_for(lambda: "error: " in job.output(), "an error")
        # Rank 0 may wait for a bucket in either stage, or for the values of a log line.
        self.assertRegex(job.output(), r"error: .*rank [23]@host1 .*nothing is heard from host1: look at the network "
                                       r"between host0 and host1")


class SlowLinks(kit.TestCase):
    def test_the_script_over_shaped_links_measures_and_predicts_with_one_and_two_ranks_per_host(self):
        script = os.path.join(os.path.dirname(virtual_hosts.__file__), "shaped_links.py")
        result = self.start_command([sys.executable, script, "--trainer", kit.TRAINER, "--model", "resnet18",
                                     "--model.image_size", "64", "--batch_size", "1", "--batches", "3", "--gbits", "1",
                                     "--wires", "float32", "--ranks", "1,2"]).wait(1500)
        self.assertEqual(result.code, kit.OK, str(result))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.output.splitlines()
                if line.startswith("| ") and not line.startswith("| link")]
        self.assertEqual([row[0] for row in rows], ["not shaped"] * 2 + ["1 Gb/s"] * 2, str(result))
        for row in rows:
            self.assertAlmostEqual(float(row[5].split()[0]) / 46.8, 1, delta=0.03, msg=str(result))  # MB a host sends
        for row in rows[2:]:
            alone, measured, predicted = (float(row[i].split()[0]) for i in (6, 7, 8))
            self.assertGreater(measured, 370, str(result))  # 46.8 MB take 374 ms at 1 Gb/s
            self.assertGreater(predicted, max(370, alone), str(result))


if __name__ == "__main__":
    if os.geteuid() or not shutil.which("tc"):
        print("network namespaces need root and iproute2")
        sys.exit(77)
    kit.main()
