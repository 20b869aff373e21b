"""The whole program with its CUDA plugin on the fake device: the same bits in whatever order the device works, captured or
not, and the losses of the CPU."""

import json
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../app"))
import kit  # noqa: E402  (found beside the tests of the program)

STEPS = 12
ORDERS = ("eager", "lazy", "random:1")  # FAKE_GPU_ORDER
SMALL = kit.merged(kit.SMALL, {
    "device.kind": "gpu", "data.format": "synthetic", "data.train": [], "train.batch_size": 4, "train.steps": STEPS,
    "model.dropout": 0.3, "ema.decay": 0.9, "device.tune": "off",
})
# How far losses may be from the CPU's, at the first step and at later ones. Batch norm over two samples magnifies rounding
# (in Inception-v3 of 75 pixels over two values), so later losses of the last two are not compared; their golden values are
# tested apart (fake_gpu/golden_test).
TOLERANCE = {"cifar10_cnn": (1e-4, 1e-4), "wide_mlp": (1e-4, 1e-4), "resnet50": (1e-2, None), "inception_v3": (1e-2, None)}
MODELS = {
    "cifar10_cnn": {"train.batch_size": 4},
    "wide_mlp": {"model.name": "wide_mlp", "model.classes": 2, "model.image_size": None, "model.hidden": [10, 10],
                 "model.vocabulary": 50, "model.max_ids": 8},
    "resnet50": {"model.name": "resnet50", "model.image_size": 64, "train.batch_size": 2, "optimizer.lr": 1e-4,
                 "watchdog.abort_seconds": 600},  # a step takes seconds, and minutes beside other work
    "inception_v3": {"model.name": "inception_v3", "model.image_size": 75, "model.init": "fan_in", "train.batch_size": 2,
                     "optimizer.lr": 1e-4, "watchdog.abort_seconds": 600},
}
NORMS = """layer = [
  { op = "conv_norm_relu", name = "stem", channels = 16, kernel = 3, pad = 1 },
  { op = "conv_norm_relu", name = "body", channels = 16, kernel = 3, pad = 1 },
  { op = "batch_norm", name = "bn" },
  { op = "global_avg_pool", name = "pool" },
  { op = "flatten", name = "flatten" },
  { op = "linear", name = "fc", outputs = "$classes" },
  { op = "loss", name = "loss" },
]
"""


class FakeGpuCase(kit.TestCase):
    def run_once(self, name, config, ranks, order, overrides=None, devices=1, env=None):
        """The directory that the run wrote into; what it printed is self.printed."""
        directory = self.path(name)
        self.printed = self.train(
            ranks, config, {"checkpoint.directory": directory, "checkpoint.resume": "never", **(overrides or {})},
            env={"FAKE_GPU_ORDER": order, "FAKE_GPU_DEVICES": str(devices), **(env or {})}, timeout=900)
        return directory

    def assert_same_bits(self, directory, other):
        """The state at the end, and all losses. Which steps are saved before the end depends on how fast the writer is."""
        one, two = (kit.datasets(os.path.join(d, kit.checkpoints(d)[-1])) for d in (directory, other))
        self.assertEqual(one.keys(), two.keys())
        for key in one.keys() - {"config"}:
            self.assertEqual(one[key].tobytes(), two[key].tobytes(), f"{key} in {other}")
        self.assertEqual(kit.per_step(directory, "loss"), kit.per_step(other, "loss"))

    def assert_same_losses(self, directory, other, tolerance):
        ours, theirs = (kit.per_step(d, "loss") for d in (directory, other))
        self.assertEqual(ours.keys(), theirs.keys())
        for step, loss in theirs.items():
            allowed = tolerance[step > 1]
            if allowed is not None:
                self.assertLess(abs(ours[step] - loss), allowed * abs(loss), f"step {step}")

    def check_orders(self, changes, ranks, devices=1, orders=ORDERS, overrides=None, tolerance=(1e-4, 1e-4)):
        """A run in which everything is done at once, uncaptured, against all others, and against the CPU's losses."""
        config = self.config(changes, SMALL)
        overrides = overrides or {}
        first = self.run_once("first", config, ranks, "eager", {"device.graph": "off", **overrides}, devices)
        for graph in ("off", "auto"):
            for order in orders:
                if (graph, order) == ("off", "eager"):
                    continue
                name = f"{graph} {order}"
                self.assert_same_bits(first, self.run_once(name, config, ranks, order, {"device.graph": graph, **overrides},
                                                           devices))
        cpu = self.run_once("cpu", config, ranks, "eager", {"device.kind": "cpu", **overrides, "device.share": "false"})
        self.assert_same_losses(first, cpu, tolerance)
        return first


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


# Which collectives of a run are not finite: those of steps 5 to 7, with one bucket a step, after the broadcasts of weights,
# momentum and averages, and of statistics where there are any.
BROKEN_SUMS = {"cifar10_cnn": "8:10", "wide_mlp": "8:10", "resnet50": "10:12", "inception_v3": "10:12"}


class InterruptedCase(FakeGpuCase):
    def check_resumed(self, model, ranks=0, devices=1):
        """A run that was resumed has the bits of one that was not; there is an evaluation in both."""
        config = self.config({**MODELS[model], "train.steps": 8, "checkpoint.every_steps": 4, "eval.every_steps": 3}, SMALL)
        whole = self.run_once("whole", config, ranks, "eager", devices=devices)
        broken = self.run_once("broken", config, ranks, "lazy", {"train.steps": 4}, devices=devices)
        self.train(ranks, config, {"checkpoint.directory": broken}, timeout=900,
                   env={"FAKE_GPU_ORDER": "random:4", "FAKE_GPU_DEVICES": str(devices)})
        self.assert_same_bits(whole, broken)

    def check_went_back(self, model, ranks=0, devices=1, changes=None):
        """Where sums are not finite for some steps, a run goes back to a checkpoint, and comes to the same end."""
        config = self.config({**MODELS[model], "checkpoint.every_steps": 4, "train.not_finite": "rollback",
                              "comm.bucket_mb": 1000, **(changes or {})}, SMALL)
        whole = self.run_once("whole", config, ranks, "lazy", devices=devices)
        back = self.path("back")
        result = self.train(ranks, config, {"checkpoint.directory": back}, timeout=900,
                            env={"FAKE_GPU_ORDER": "lazy", "FAKE_GPU_DEVICES": str(devices),
                                 "FAKE_NCCL_NAN": BROKEN_SUMS[model]})
        self.assertIn("; back from step ", str(result))
        self.assert_same_bits(whole, back)


class Interruptions(InterruptedCase):
    def test_a_run_that_was_resumed_has_the_bits_of_one_that_was_not(self):
        self.check_resumed("cifar10_cnn")

    def test_a_run_that_went_back_has_the_bits_of_one_that_did_not(self):
        self.check_went_back("cifar10_cnn")

    def test_a_run_with_weights_in_16_bits_that_went_back_has_the_bits_of_one_that_did_not(self):
        self.check_went_back("cifar10_cnn", changes={"train.precision": "bf16"})


class FusedCase(FakeGpuCase):
    """A network of every fused operation, in fp16: sums behind convolutions, the first of which reads pairs of pixels, images
    normalized before convolutions and their gradients, sums of a norm's gradient, a norm before a max pool, norms of slices
    of a merged convolution."""
    NET = """layer = [
      { op = "conv_norm_relu", name = "stem", channels = 8, kernel = 3, stride = 2 },
      { op = "conv_norm_relu", name = "one", channels = 16, kernel = 3, pad = 1 },
      { op = "max_pool", name = "pool", kernel = 3, stride = 2 },
      { op = "conv_norm_relu", name = "left", channels = 16 },
      { op = "conv_norm_relu", name = "left2", channels = 16, kernel = 3, pad = 1 },
      { op = "conv_norm_relu", name = "right", channels = 16, input = "pool" },
      { op = "concat", name = "both", inputs = ["left2", "right"] },
      { op = "global_avg_pool", name = "avgpool" },
      { op = "flatten", name = "flatten" },
      { op = "linear", name = "fc", outputs = "$classes" },
      { op = "loss", name = "loss" },
    ]
    """
    CHANGES = {"model.name": "file", "model.dropout": None, "train.steps": 4, "train.precision": "fp16"}

    def changes(self):
        return {**self.CHANGES, "model.file": kit.write(self.path("net.toml"), self.NET.encode())}

    def fused_config(self, scales=True):
        return self.config({**self.changes(), "model.bn_scale": scales}, SMALL)

    def check_ranks(self, changes):
        """Two ranks compute what one does with the samples of both as two micro-batches: batch norms treat these apart as well."""
        config = self.config(changes, SMALL)
        one = self.run_once("one", config, 0, "lazy", {"train.accumulate": "2"})
        two = self.run_once("two", config, 2, "lazy", devices=2)
        self.assert_same_losses(two, one, (1e-6, 1e-5))
        ours, theirs = (kit.datasets(os.path.join(d, kit.checkpoints(d)[-1])) for d in (two, one))
        self.assertEqual(ours.keys(), theirs.keys())
        for key in (key for key in theirs if key.startswith("model/")):
            self.assertLessEqual(abs(ours[key] - theirs[key]).max(), 1e-5 * abs(theirs[key]).max(), key)


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


class Tuning(FakeGpuCase):
    """FAKE_GPU_PLANS=N gives each plan of cuDNN its own time, by seed and device, and bits."""
    CONFIG = {"model.name": "file", "model.definition": NORMS, "train.steps": 4, "train.precision": "fp16", "model.dropout": None,
              "device.tune": "auto"}
    TIMED = r"tune \| \d+ convolutions of \d+ shapes, \d+ plans timed in [\d.]+ s: [\d.]+ ms with the fastest, [\d.]+ ms with"

    def run_tuned(self, name, order, overrides=None, ranks=0, devices=1, **env):
        config = self.config(self.CONFIG, SMALL)
        return self.run_once(name, config, ranks, order, overrides, devices, {"FAKE_GPU_PLANS": "1", **env})

    def resume(self, directory, **env):
        config = self.config({**self.CONFIG, "checkpoint.directory": directory}, SMALL)
        return self.run_job(0, "--config", config, env={"FAKE_GPU_ORDER": "lazy", **env})

    def plans(self, directory):
        with open(os.path.join(directory, "plans.txt"), encoding="utf-8") as file:
            return file.read()

    def test_the_fastest_plans_are_taken_captured_or_not(self):
        first = self.run_tuned("first", "eager", {"device.graph": "off"})
        self.assertRegex(str(self.printed), self.TIMED)
        captured = self.run_tuned("captured", "random:3")
        self.assertEqual(self.plans(first), self.plans(captured))
        self.assert_same_bits(first, captured)
        other = self.run_tuned("other", "lazy", FAKE_GPU_PLANS="2")
        self.assertNotEqual(self.plans(first), self.plans(other))
        untimed = [self.run_tuned(name, "lazy", {key: value, "train.steps": 2})
                   for name, key, value in (("off", "device.tune", "off"), ("same", "train.deterministic", "true"))]
        self.assertFalse(any(os.path.exists(os.path.join(directory, "plans.txt")) for directory in untimed))
        self.assert_same_bits(*untimed)
        self.assertNotEqual(kit.per_step(untimed[0], "loss")[1], kit.per_step(first, "loss")[1])

    def test_plans_are_kept_for_a_run_that_is_resumed(self):
        whole = self.run_tuned("whole", "eager")
        broken = self.run_tuned("broken", "lazy", {"train.steps": 2})
        kept = self.plans(broken)
        for text, why in ((kept.replace("16", "17", 1), "the checksum is wrong"),
                          (kept.replace("plans 1", "plans 2"), 'its first line is not "lockstep plans 1"')):
            kit.write(os.path.join(broken, "plans.txt"), text)
            self.assert_one_error(self.resume(broken, FAKE_GPU_PLANS="2"), kit.CHECKPOINT, "plans.txt: " + why)
        kit.write(os.path.join(broken, "plans.txt"), kept)
        result = self.resume(broken, FAKE_GPU_PLANS="2")  # which would choose others
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertRegex(str(result), r"tune \| (\d+) convolutions of (\d+) shapes, \2 as in .*broken/plans.txt\n")
        self.assertEqual(self.plans(broken), kept)
        self.assert_same_bits(whole, broken)

    def test_a_run_that_starts_anew_leaves_no_plans_of_the_one_before(self):
        run = self.run_tuned("run", "lazy", {"train.steps": 2})
        config = self.config({**self.CONFIG, "checkpoint.directory": run}, SMALL)
        result = self.run_job(0, "--config", config, "--checkpoint.resume", "never", "--checkpoint.overwrite", "true",
                              "--train.deterministic", "true", env={"FAKE_GPU_ORDER": "lazy", "FAKE_GPU_PLANS": "1"})
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertFalse(os.path.exists(os.path.join(run, "plans.txt")))

    def test_a_deterministic_run_takes_kept_plans_only_with_the_checkpoint_that_was_made_with_them(self):
        run = self.run_tuned("run", "lazy", {"train.steps": 2})
        kept = self.plans(run)
        same = {"train.deterministic": "true", "checkpoint.resume": "auto"}
        self.assertRegex(str(self.run_tuned("run", "lazy", same) and self.printed), r"tune \| .* as in .*run/plans.txt\n")
        self.assertEqual(self.plans(run), kept)
        for name in (*kit.checkpoints(run), "latest"):
            os.remove(os.path.join(run, name))
        self.run_tuned("run", "lazy", same)
        self.assertEqual(self.printed.count("tune |"), 0, str(self.printed))
        self.assertFalse(os.path.exists(os.path.join(run, "plans.txt")))
        self.assert_same_bits(run, self.run_tuned("new", "random:3", same))

    def test_plans_of_another_device_are_timed_again(self):
        run = self.run_tuned("run", "lazy", {"train.steps": 2})
        result = self.resume(run, FAKE_GPU_PLANS="2", FAKE_GPU_OTHER="0")
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertRegex(str(result), r"plans.txt is for fake device \(compute capability 9.0\), cuDNN 9[.\d]+, this is another fake "
                                      r"device \(compute capability 9.0\), cuDNN 9[.\d]+: plans are timed again")
        self.assertRegex(str(result), self.TIMED)
        self.assertIn("another fake device", self.plans(run))

    def test_all_ranks_take_the_plans_of_rank_0(self):
        nccl = self.run_tuned("nccl", "lazy", ranks=2, devices=2)  # the second device would choose others
        self.assertEqual(self.printed.count("plans timed in"), 1)
        self.assert_same_bits(nccl, self.run_tuned("mpi", "random:7", {"device.share": "true"}, ranks=2))

    def test_a_rank_on_another_device_takes_the_first_plans(self):
        self.run_tuned("other", "lazy", {"train.steps": 2}, ranks=2, devices=2, FAKE_GPU_OTHER="1")
        self.assertRegex(str(self.printed), r"warning: rank 1@\w+: this is another fake device \(.*, but rank 0 has fake device \(")

    def test_a_plan_that_does_not_run_is_left_out(self):
        self.run_tuned("some", "lazy", {"train.steps": 2}, FAKE_GPU_PLANS="1:3")
        self.assertRegex(str(self.printed), r"tune \| .* plans timed in .*, \d+ plans? did not run")

    def test_explain_says_what_would_be_timed(self):
        config = self.config(self.CONFIG, SMALL)
        said = r"tune \| \d+ convolutions of \d+ shapes in a step on this GPU: a run times the first plans of each shape"
        self.assertRegex(str(self.run_job(0, "explain", "--config", config)), said)
        self.assertNotRegex(str(self.run_job(0, "explain", "--config", config, "--device.tune", "off")), said)


class Captures(FakeGpuCase):
    """FAKE_GPU_ALLOCATE=D:N: the N-th kernel of each capture on device D allocates memory, which is illegal there. Kernels are
    refused in the first layer, in the backward pass, when sums of gradients have been captured, and in the update."""
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

    def test_one_rank_may_be_captured_and_the_other_not(self):
        self.check_fallback({}, 2, 2, self.faults(1, (1, 46)))

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


class Benchmark(FakeGpuCase):
    """Benchmark mode uploads one batch, and no other; with --nobatch_on_device one in each step."""
    IMAGES = 4 * 3 * 32 * 32  # bytes of four images

    def uploads(self, *more):
        result = self.run_job(0, "--model", "cifar10_cnn", "--batch_size", "4", "--num_batches", "6", "--num_warmup_batches",
                              "4", "--device", "gpu", "--device.tune", "off", "--benchmark_log_dir", self.path("logs"), *more,
                              env={"FAKE_GPU_ORDER": "lazy", "FAKE_GPU_COPIES": "1"})
        self.assertEqual(result.code, kit.OK, str(result))
        with open(self.path("logs", "benchmark.json"), encoding="utf-8") as file:
            stays = json.load(file)["batch_on_device"]
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
        config = self.config({"train.steps": 1000, "watchdog.abort_seconds": 60}, SMALL)
        env = {"FAKE_GPU_DEVICES": "2", "FAKE_NCCL_FAIL": "1:60"}
        result = self.run_job(2, "--config", config, env=env)
        self.assertEqual(result.code, kit.INTERNAL, str(result))
        self.assertIn("the connection was closed by the remote peer", str(result))
        self.assertNotIn("NCCL has not ended its connection", str(result))  # as it says after abort_seconds

    def test_a_kernel_that_faults_ends_a_job_with_one_error(self):
        config = self.config({}, SMALL)
        for graph in ("off", "auto"):
            result = self.run_job(0, "--config", config, "--device.graph", graph, env={"FAKE_GPU_FAULT": "120"})
            self.assert_one_error(result, kit.INTERNAL, "an illegal memory access was encountered")
            self.assertEqual(result.warnings(), [])


def slow_case(model, ranks, devices, accumulate, share):
    def test(self):
        changes = {**MODELS[model], "train.accumulate": accumulate}
        self.check_orders(changes, ranks, devices, overrides={"device.share": "true"} if share else None,
                          tolerance=TOLERANCE[model])

    return test


class SlowModels(FakeGpuCase):
    """Every model, accumulation 1 and 3, on one rank, two devices over NCCL and one device over MPI."""


for _model in MODELS:
    for _accumulate in (1, 3):
        for _where, _ranks, _devices, _share in (("one_rank", 0, 1, False), ("nccl", 2, 2, False), ("mpi", 2, 1, True)):
            setattr(SlowModels, f"test_{_model}_accumulating_{_accumulate}_{_where}",
                    slow_case(_model, _ranks, _devices, _accumulate, _share))


class SlowInterruptions(InterruptedCase):
    """The others of the models, and two ranks."""


for _model in MODELS:
    for _what, _check in (("resumed", "check_resumed"), ("went_back", "check_went_back")):
        setattr(SlowInterruptions, f"test_{_model}_{_what}",
                lambda self, model=_model, check=_check: getattr(self, check)(model, ranks=2, devices=2))


class SlowRanks(FusedCase):
    """The number of ranks in 16 bits, also in large networks of fused convolutions."""

    def gradient_and_loss(self, name, config, ranks, overrides):
        directory = self.run_once(name, config, ranks, "lazy", overrides, devices=2)
        slots = kit.datasets(os.path.join(directory, kit.checkpoints(directory)[-1]))
        names = sorted(key for key in slots if key.startswith("optimizer/momentum/"))  # the gradient, after one step
        return numpy.concatenate([slots[key].ravel() for key in names]).astype(float), kit.per_step(directory, "loss")[1]

    def test_bf16(self):
        self.check_ranks({**self.changes(), "train.precision": "bf16"})

    def check_synchronized(self, precision):
        """Where ranks normalize together, they compute what one does with one batch, but for the rounding to 16 bits."""
        config = self.config({**self.changes(), "train.precision": precision, "train.steps": 1}, SMALL)
        batch = SMALL["train"]["batch_size"]
        one, loss = self.gradient_and_loss("one", config, 0, {"train.batch_size": str(2 * batch)})
        for sync, bounds in (("true", (0, 0.1)), ("false", (0.3, 1))):
            two, other_loss = self.gradient_and_loss(sync, config, 2, {"train.sync_batch_norm": sync})
            distance = numpy.linalg.norm(two - one) / numpy.linalg.norm(one)
            self.assertTrue(bounds[0] < distance < bounds[1], f"sync_batch_norm {sync}: {distance}")
            self.assertEqual(abs(other_loss / loss - 1) < 1e-4, sync == "true")


class SlowDigits(FakeGpuCase):
    """The digits recipe continued in 16 bits beside float32: same weights, slots, data and dropout, on the same device.

    It begins after 60 steps on the CPU. In a network that has learned nothing, norms over 16 nearly equal values magnify
    rounding so much that float32 differs from float32 by per cents, and every loss is that of guessing. After 60 steps
    an error of the weights or the gradients shows: the loss is half of that.

    Losses: with the unit roundoff u, 2^-9 in bf16 and 2^-12 in fp16, each of about 190 tensors between images and logits
    is rounded with an error of u/sqrt(3). Independent ones make sqrt(190/3) u = 8 u of the logits, and less of a batch's
    loss. Twice that is allowed at each step (seen: 0.0051 of 0.031 in bf16, 0.0005 of 0.0039 in fp16).

    Gradients: norms magnify rounding on the way back; float32 with other instructions differs by 0.02. Their mean over
    the steps may differ by half of its length: another batch's differs by 1.4, and none by 1 (seen: 0.30 and 0.13). Its
    length, to which independent errors add little, is compared to a tenth, which no factor passes that is left out."""
    RECIPE = {"schedule.name": "constant", "schedule.warmup_epochs": 0, "optimizer.lr": 1e-3, "ema.decay": 0,
              "data.validation": "", "checkpoint.every_seconds": 0, "log.every_steps": 1, "watchdog.abort_seconds": 600}

    def average(self, directory):
        slots = kit.datasets(os.path.join(directory, kit.checkpoints(directory)[-1]))
        names = sorted(key for key in slots if key.startswith("optimizer/exp_avg/"))
        return numpy.concatenate([slots[key].ravel() for key in names]).astype(float)

    def test_16_bits_follow_float32(self):
        learned = self.run_once("learned", "digits", 0, "eager", {**self.RECIPE, "train.steps": 60, "device.kind": "cpu"})
        whole = {}
        for precision in ("float32", "bf16", "fp16"):
            whole[precision] = self.run_once(precision, "digits", 0, "eager", {
                **self.RECIPE, "train.steps": 64, "device.kind": "gpu", "device.tune": "off", "train.precision": precision,
                "checkpoint.resume": os.path.join(learned, "latest"), "checkpoint.allow_changes": "true"})
        self.assertLess(max(kit.per_step(whole["float32"], "loss").values()), 2)  # guessing has a loss of 2.3
        before = 0.9 ** 4 * self.average(learned)  # what four steps leave of it
        expected = self.average(whole["float32"]) - before
        for precision, unit in (("bf16", 2 ** -9), ("fp16", 2 ** -12)):
            self.assert_same_losses(whole[precision], whole["float32"], (16 * unit, 16 * unit))
            gradient = self.average(whole[precision]) - before
            length = numpy.linalg.norm(expected)
            self.assertLess(numpy.linalg.norm(gradient - expected) / length, 0.5, precision)
            self.assertLess(abs(numpy.linalg.norm(gradient) / length - 1), 0.1, precision)


for _precision in ("fp16", "bf16"):
    setattr(SlowRanks, f"test_{_precision}_synchronized", lambda self, precision=_precision: self.check_synchronized(precision))
    for _model in ("resnet50", "inception_v3"):
        setattr(SlowRanks, f"test_{_precision}_{_model}", lambda self, precision=_precision, model=_model: self.check_ranks(
            {**MODELS[model], "train.steps": 2, "train.precision": precision}))


if __name__ == "__main__":
    kit.main()
