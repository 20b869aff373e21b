"""What the tests of the program on the fake device share: small runs, and what must be equal in them."""

import os
import sys

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
    FALLS_BACK = False  # whether the case plants something that forbids a capture

    def run_once(self, name, config, ranks, order, overrides=None, devices=1, env=None):
        """The directory that the run wrote into; what it printed is self.printed."""
        directory = self.path(name)
        self.printed = self.train(
            ranks, config, {"checkpoint.directory": directory, "checkpoint.resume": "never", **(overrides or {})},
            env={"FAKE_GPU_ORDER": order, "FAKE_GPU_DEVICES": str(devices), **(env or {})}, timeout=900)
        if not self.FALLS_BACK:
            self.assertNotIn("cannot be captured", str(self.printed))
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
        """A run in which everything is done at once, uncaptured, against all others, and against the CPU's losses. Where
        ranks share a device, gradients go through MPI and steps are never captured."""
        config = self.config(changes, SMALL)
        overrides = overrides or {}
        first = self.run_once("first", config, ranks, "eager", {"device.graph": "off", **overrides}, devices)
        for graph in ("off",) if overrides.get("device.share") == "true" else ("off", "on"):
            for order in orders:
                if (graph, order) == ("off", "eager"):
                    continue
                name = f"{graph} {order}"
                self.assert_same_bits(first, self.run_once(name, config, ranks, order, {"device.graph": graph, **overrides},
                                                           devices))
        cpu = self.run_once("cpu", config, ranks, "eager", {"device.kind": "cpu", **overrides, "device.share": "false"})
        self.assert_same_losses(first, cpu, tolerance)
        return first


# Which collectives of a run are not finite: those of steps 5 to 7, with one bucket a step, after the broadcasts of weights,
# momentum and averages, and of statistics where there are any.
BROKEN_SUMS = {"cifar10_cnn": "8:10", "wide_mlp": "8:10", "resnet50": "10:12", "inception_v3": "10:12"}


class InterruptedCase(FakeGpuCase):
    def few_samples(self, model):
        """Writes samples to train on and to validate with; returns the keys that name them."""
        if model == "wide_mlp":
            for name, count in (("train", 24), ("validation", 6)):
                kit.write(self.path(name + ".tfrecord"), kit.frame(
                    kit.sparse_example(i % 2, [i % 50, (7 * i + 1) % 50], [1, 0.5]) for i in range(count)))
            data_format = "sparse_tfrecord"
        else:
            side = MODELS[model].get("model.image_size", 16)
            self.records(24, side=side)
            self.records(6, "validation.tfrecord", side=side, seed=1)
            data_format = "tfrecord"
        return {"data.format": data_format, "data.train": "train.tfrecord", "data.validation": "validation.tfrecord",
                "eval.every_steps": 3}

    def check_resumed(self, model, ranks=0, devices=1, overrides=None):
        """A run that was resumed has the bits of one that was not, also what its evaluations found."""
        config = self.config({**MODELS[model], **self.few_samples(model), "checkpoint.every_steps": 4}, SMALL)
        overrides = overrides or {}
        whole = self.run_once("whole", config, ranks, "eager", overrides, devices)
        broken = self.run_once("broken", config, ranks, "lazy", {"train.steps": 4, **overrides}, devices)
        self.train(ranks, config, {"checkpoint.directory": broken, **overrides}, timeout=900,
                   env={"FAKE_GPU_ORDER": "random:4", "FAKE_GPU_DEVICES": str(devices)})
        self.assert_same_bits(whole, broken)
        found, others = ([{**row, "time": 0} for row in kit.metrics(d, "eval") if row["step"] % 3 == 0]
                         for d in (whole, broken))
        self.assertEqual([(row["step"], row["weights"]) for row in found],
                         [(step, weights) for step in (3, 6, 9, 12) for weights in ("raw", "ema")])
        self.assertEqual(others, found)

    def check_went_back(self, model, ranks=0, devices=1, changes=None):
        """Where sums are not finite for some steps, a run goes back to a checkpoint, and comes to the same end."""
        config = self.config({**MODELS[model], "checkpoint.every_steps": 4, "train.not_finite": "rollback",
                              "comm.transport": "nccl", "comm.bucket_mb": 1000, **(changes or {})}, SMALL)
        whole = self.run_once("whole", config, ranks, "lazy", devices=devices)
        back = self.path("back")
        result = self.train(ranks, config, {"checkpoint.directory": back}, timeout=900,
                            env={"FAKE_GPU_ORDER": "lazy", "FAKE_GPU_DEVICES": str(devices),
                                 "FAKE_NCCL_NAN": BROKEN_SUMS[model]})
        self.assertIn("; back from step ", str(result))
        self.assert_same_bits(whole, back)


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
