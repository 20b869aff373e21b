"""The whole program with its CUDA plugin on the fake device: the same bits in whatever order the device works, captured or
not, and the losses of the CPU."""

import json
import os
import re

from cases import NORMS, SMALL, FakeGpuCase, FusedCase, InterruptedCase, kit


class Orders(FakeGpuCase):
    def test_one_rank_has_the_same_bits_in_all_orders(self):
        self.check_orders({"train.accumulate": 3, "train.steps": 5}, 0)

    def test_images_that_change_color_have_the_same_bits_and_nearly_the_losses_of_the_cpu(self):
        # The loader rounds to bytes for a GPU, and not for a CPU.
        self.check_orders({"data.augment": "inception", "train.steps": 4}, 0, orders=("random:2",), tolerance=(1e-2, 2e-2))

    def test_half_precision_has_the_same_bits(self):
        config = self.config({"train.steps": 5, "train.precision": "fp16"}, SMALL)
        first = self.run_once("first", config, 0, "eager", {"device.graph": "off"})
        self.assert_same_bits(first, self.run_once("shuffled", config, 0, "random:5"))

    def test_frozen_layers_and_statistics_have_the_same_bits(self):
        self.check_orders({"model.name": "file", "model.definition": NORMS, "train.steps": 5, "train.freeze": ["stem"],
                           "train.freeze_batch_norm": ["body"], "optimizer.lr_factors": ["fc=10", "body*=0.5"]}, 0,
                          orders=("lazy",))

    def test_two_ranks_have_the_same_bits_over_nccl_and_over_mpi(self):
        config = self.config({"train.steps": 5}, SMALL)
        nccl = self.run_once("nccl", config, 2, "lazy", devices=2)
        self.assert_same_bits(nccl, self.run_once("shuffled", config, 2, "random:7", devices=2))
        self.assert_same_bits(nccl, self.run_once("mpi", config, 2, "random:7", {"device.share": "true"}))


class Interruptions(InterruptedCase):
    def test_a_run_that_was_resumed_has_the_bits_of_one_that_was_not(self):
        self.check_resumed("cifar10_cnn")

    def test_a_run_that_went_back_has_the_bits_of_one_that_did_not(self):
        self.check_went_back("cifar10_cnn")

    def test_a_run_with_weights_in_16_bits_that_went_back_has_the_bits_of_one_that_did_not(self):
        self.check_went_back("cifar10_cnn", changes={"train.precision": "bf16"})


class Fusions(FusedCase):
    def test_same_bits_in_all_orders_and_resumed_and_nearly_the_losses_of_float32(self):
        config = self.fused_config(scales=False)  # with fixed scales, norms of slices and of concatenations are fused as well
        first = self.run_once("first", config, 0, "eager", {"device.graph": "off"})
        self.assert_same_bits(first, self.run_once("shuffled", config, 0, "random:3"))
        broken = self.run_once("broken", config, 0, "lazy", {"train.steps": 2})
        self.train(0, config, {"checkpoint.directory": broken}, env={"FAKE_GPU_ORDER": "random:4"})
        self.assert_same_bits(first, broken)
        cpu = self.run_once("cpu", config, 0, "eager", {"device.kind": "cpu", "train.precision": "float32"})
        self.assert_same_losses(first, cpu, (2e-3, 2e-2))
        ours, theirs = (kit.datasets(os.path.join(d, kit.checkpoints(d)[-1])) for d in (first, cpu))
        statistics = [key for key in theirs if key.startswith("model/") and "running_" in key]
        self.assertEqual(len(statistics), 10)  # of five norms
        for key in statistics:
            self.assertLess(abs(ours[key] - theirs[key]).max(), 1e-2 * abs(theirs[key]).max(), key)

    def test_explain_says_which_convolutions_are_fused_and_why_others_are_not(self):
        config = self.fused_config()
        result = self.run_job(0, "explain", "--config", config)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertIn("of 4 convolutions on this GPU, 4 sum for the batch norm behind them, 1 normalize", str(result))
        self.assertRegex(str(result), r"stem\.conv +does not normalize its image: no batch norm with ReLU makes it")
        self.assertRegex(str(result), r"left2\.conv +does not normalize its image: that is a slice of a merged convolution")
        # A rate of 0 keeps a convolution apart, as in a run.
        result = self.run_job(0, "explain", "--config", config, "--optimizer.lr_factors", "left=0")
        self.assertRegex(str(result), r"of 5 convolutions .* 5 sum for the batch norm behind them, 2 normalize")
        result = self.run_job(0, "explain", "--config", config, "--train.precision", "bf16")
        self.assertRegex(str(result), r"one\.conv +does not sum: no engine for \[4,8,7,7\] in bf16")
        result = self.run_job(0, "explain", "--config", config, "--device.kind", "cpu")
        self.assertEqual(result.count("on this GPU"), 0, str(result))

    def test_two_ranks_have_the_same_bits_over_nccl_and_over_mpi(self):
        config = self.fused_config()
        nccl = self.run_once("nccl", config, 2, "lazy", devices=2)
        self.assert_same_bits(nccl, self.run_once("mpi", config, 2, "random:7", {"device.share": "true"}))

    def test_two_ranks_compute_what_one_does(self):
        self.check_ranks(self.changes())


class Captures(FakeGpuCase):
    """FAKE_GPU_ALLOCATE=D:N: the N-th kernel of each capture on device D allocates memory, which is illegal there. Kernels are
    refused in the first layer, in the backward pass, when sums of gradients have been captured, and in the update."""
    FALLS_BACK = True
    CHANGES = {"train.steps": 6, "comm.bucket_mb": 0.5}

    @staticmethod
    def faults(faulty, kernels):
        """On device `faulty` one of these kernels is refused, or in the end the whole graph."""
        return [*((f"kernel {kernel}", {"FAKE_GPU_ALLOCATE": f"{faulty}:{kernel}"},
                   r"fake GPU: cudaMalloc by \w+ while stream \d+ is ") for kernel in kernels),
                ("graph", {"FAKE_GPU_NO_GRAPH": str(faulty)}, "out of GPU memory: making a graph of the captured work")]

    def check_fallback(self, changes, ranks, devices, faults):
        config = self.config({**self.CHANGES, **changes}, SMALL)
        whole = self.run_once("whole", config, ranks, "lazy", {"device.graph": "off"}, devices)
        warnings = len(self.printed.warnings())
        for name, env, text in faults:
            with self.subTest(name):
                other = self.run_once(name, config, ranks, "lazy", devices=devices, env=env)
                self.assert_same_bits(whole, other)
                self.assert_once(self.printed, "the step cannot be captured, so its kernels are enqueued one by one")
                self.assertEqual(len(self.printed.warnings()), warnings + 1, str(self.printed))
                self.assertRegex(str(self.printed), "the step cannot be captured, .*: " + text)

    def test_a_step_that_cannot_be_captured_is_computed_all_the_same(self):
        self.check_fallback({}, 0, 1, self.faults(0, (1, 25, 46)))

    def test_micro_batches_that_cannot_be_captured_are_computed_all_the_same(self):
        self.check_fallback({"train.accumulate": 3, "model.dropout": 0.3}, 0, 1, self.faults(0, (1, 47)))

    def test_all_ranks_are_uncaptured_when_one_cannot_capture(self):
        self.check_fallback({}, 2, 2, self.faults(1, (1, 46)))

    def test_all_ranks_are_uncaptured_when_one_cannot_capture_some_micro_batch(self):
        # With the 46th kernel of a capture, the first and the middle part have been captured on all ranks.
        self.check_fallback({"train.accumulate": 3}, 2, 2, self.faults(1, (1, 46)))

    def check_nccl_fallback(self, changes, fault):
        """NCCL loses its connection with the capture."""
        self.check_fallback(changes, 2, 2, [
            ("nccl", {"FAKE_NCCL_NO_CAPTURE": fault},
             r"NCCL, step 3 bucket \d of \d: unhandled cuda error \(.*this NCCL cannot capture")])

    def test_nccl_that_cannot_capture_is_used_all_the_same(self):
        self.check_nccl_fallback({}, "1:1")

    def test_nccl_that_cannot_capture_the_last_micro_batch_is_used_all_the_same(self):
        self.check_nccl_fallback({"train.accumulate": 3}, "0:2")

    def test_device_graph_on_makes_it_an_error_that_names_the_call(self):
        config = self.config(self.CHANGES, SMALL)
        run = {"FAKE_GPU_ALLOCATE": "0:25", "FAKE_GPU_ORDER": "lazy"}
        result = self.run_job(0, "--config", config, "--device.graph", "on", env=run)
        self.assert_one_error(result, kit.INTERNAL, 'device.graph = "on", but the step cannot be captured: ', "cudaMalloc by ")
        self.assertEqual(result.count("enqueued one by one"), 0, str(result))
        whole = self.run_once("whole", config, 0, "lazy", {"device.graph": "off"})
        self.assert_same_bits(whole, self.run_once("on", config, 0, "lazy", {"device.graph": "on"}))

    def test_device_graph_on_needs_a_gpu_and_nccl(self):
        config = self.config(self.CHANGES, SMALL)
        for ranks, changes, why in ((0, ("--device.kind", "cpu"), "needs a GPU"), (2, ("--device.share", "true"), "needs NCCL")):
            result = self.run_job(ranks, "--config", config, "--device.graph", "on", *changes)
            self.assert_one_error(result, kit.CONFIG, 'device.graph = "on" ' + why)


class Ends(FakeGpuCase):
    """How connections of NCCL end. FAKE_NCCL_LINGER=R:MS: rank R is the last in each collective; one that leaves meanwhile is a
    fault of the fake."""

    def test_no_rank_leaves_while_another_is_in_a_collective(self):
        config = self.config({"train.not_finite": "stop", "comm.bucket_mb": 1000}, SMALL)
        for graph in ("off", "auto"):
            result = self.run_job(2, "--config", config, "--device.graph", graph, env={
                "FAKE_GPU_DEVICES": "2", "FAKE_NCCL_NAN": "8:10", "FAKE_NCCL_LINGER": "1:300"})
            self.assert_one_error(result, kit.NUMERICS, "the weights are those of the step before")

    def test_a_connection_that_nccl_never_ends_does_not_keep_the_program_from_its_end(self):
        config = self.config({"train.steps": 4}, SMALL)
        result = self.run_job(2, "--config", config, env={
            "FAKE_GPU_DEVICES": "2", "FAKE_NCCL_NO_CAPTURE": "1:1", "FAKE_NCCL_ABORT_HANGS": "1"})
        self.assertEqual(result.code, kit.OK, str(result))
        self.assert_once(result, "NCCL has not ended its connection yet; the job continues without it")
        self.assertEqual(result.count("SIGABRT"), 0, str(result))


class Benchmark(FakeGpuCase):
    """Benchmark mode uploads one batch, and no other; with --nobatch_on_device one in each step."""
    IMAGES = 4 * 3 * 32 * 32  # bytes of four images

    def uploads(self, *more):
        result = self.run_job(0, "--model", "cifar10_cnn", "--batch_size", "4", "--num_batches", "6", "--num_warmup_batches",
                              "4", "--device", "gpu", "--device.tune", "off", "--benchmark_log_dir", self.path("logs"), *more,
                              env={"FAKE_GPU_ORDER": "lazy", "FAKE_GPU_COPIES": "1"})
        self.assertEqual(result.code, kit.OK, str(result))
        with open(self.path("logs", "benchmark.json"), encoding="utf-8") as file:
            measured = json.load(file)
        stays = measured["batch_on_device"]
        # Steps in flight are waited for at the end, and this wait is their time.
        seconds = measured["step_seconds"]
        self.assertGreater(sum(seconds[-2:]), 0.1 * sorted(seconds)[3])
        copies = re.findall(r"fake GPU: (\d+) copies of (\d+) bytes from the host", str(result))
        return result, stays, sum(int(count) for count, size in copies if int(size) == self.IMAGES)

    def test_the_batch_is_uploaded_once_and_stays_on_the_device(self):
        for more in ((), ("--forward_only",), ("--device.graph", "off")):
            result, stays, uploads = self.uploads(*more)
            self.assertEqual((stays, uploads), (True, 1), f"{more} {result}")
            self.assert_once(result, "Input:       one batch, which stays on the device")

    def test_a_batch_may_be_uploaded_in_each_step(self):
        for more in ((), ("--forward_only",)):
            result, stays, uploads = self.uploads("--nobatch_on_device", *more)
            self.assertEqual((stays, uploads), (False, 10), f"{more} {result}")
            self.assert_once(result, "Input:       a batch uploaded in each step")

    def test_the_steps_of_each_rank_alone_are_timed_without_the_capture(self):
        result = self.run_job(2, "--model", "cifar10_cnn", "--batch_size", "4", "--num_batches", "4", "--num_warmup_batches", "4",
                              "--num_alone_batches", "2", "--device", "gpu", "--device.tune", "off",
                              "--benchmark_log_dir", self.path("logs"),
                              env={"FAKE_GPU_DEVICES": "2", "FAKE_GPU_ORDER": "lazy", "FAKE_GPU_UPLOAD": "16000"})
        self.assertEqual(result.code, kit.OK, str(result))
        with open(self.path("logs", "benchmark.json"), encoding="utf-8") as file:
            benchmark = json.load(file)
        together = sum(benchmark["step_seconds"]) / len(benchmark["step_seconds"])
        for alone in benchmark["alone"]["rank_seconds"]:
            self.assertLess(alone, together + 4, benchmark)  # the upload would add 8 s to the mean of two steps


class Profile(FakeGpuCase):
    def test_events_time_what_the_device_computes(self):
        config = self.config({"train.batch_size": 4}, SMALL)
        result = self.run_job(1, "profile", "--config", config, "--steps", "2", "--to", "steps.json",
                              env={"FAKE_GPU_ORDER": "lazy"})
        self.assertEqual(result.code, kit.OK, str(result))
        with open(self.path("steps.json"), encoding="utf-8") as file:
            profile = json.load(file)
        self.assertAlmostEqual(sum(row["ms"] for row in profile["rows"]) / profile["step_ms"], 1, delta=1e-6)
        conv1 = next(row for row in profile["rows"] if row["name"] == "conv1")
        self.assertTrue(conv1["implementation"].startswith("cudnn:"), conv1)
        # The fake computes convolutions in plain loops, late: the host enqueues one in far less than 0.1 ms of 2 MFLOP.
        self.assertGreater(conv1["ms"], 0.1)
        self.assertGreater(conv1["of_peak"], 0)


class Failures(FakeGpuCase):
    def test_an_error_of_nccl_ends_a_job_whose_step_is_captured_in_seconds(self):
        config = self.config({"train.steps": 1000, "watchdog.abort_seconds": 120}, SMALL)
        env = {"FAKE_GPU_DEVICES": "2", "FAKE_NCCL_FAIL": "1:60"}
        result = self.run_job(2, "--config", config, "--device.graph", "on", env=env)
        self.assertEqual(result.code, kit.INTERNAL, str(result))
        self.assertLess(result.seconds, 60, str(result))  # half of the limit
        self.assertIn("the connection was closed by the remote peer", str(result))
        self.assertNotIn("NCCL has not ended its connection", str(result))  # as it says after abort_seconds

    def test_one_rank_needs_no_nccl(self):
        config = self.config({}, SMALL)
        env = {"FAKE_NCCL_FAIL": "0:1"}
        result = self.run_job(0, "--config", config, "--device.graph", "on", env=env)
        self.assertEqual(result.code, kit.OK, str(result))
        result = self.run_job(0, "--config", config, "--comm.transport", "nccl", "--checkpoint.directory", self.path("other"),
                              env=env)
        self.assertEqual(result.code, kit.INTERNAL, str(result))

    def test_a_kernel_that_faults_ends_a_job_with_one_error(self):
        config = self.config({}, SMALL)
        for graph in ("off", "auto"):
            result = self.run_job(0, "--config", config, "--device.graph", graph, env={"FAKE_GPU_FAULT": "120"})
            self.assert_one_error(result, kit.INTERNAL, "an illegal memory access was encountered")
            self.assertEqual(result.warnings(), [])


if __name__ == "__main__":
    kit.main()
