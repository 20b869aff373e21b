"""Fine-tuning: frozen layers and their cost, learning-rate factors, and weights of other programs."""

import re

import h5py
import numpy

import kit

NET = """layer = [
  { op = "conv_norm_relu", name = "stem", channels = 16, kernel = 3, pad = 1 },
  { op = "conv_norm_relu", name = "body", channels = 16, kernel = 3, pad = 1 },
  { op = "global_avg_pool", name = "pool" },
  { op = "flatten", name = "flatten" },
  { op = "linear", name = "fc", outputs = "$classes" },
  { op = "loss", name = "loss" },
]
"""
BASE = kit.merged(kit.SMALL, {"model.name": "file", "model.file": "net.toml", "train.batch_size": 6, "train.steps": 5,
                              "optimizer.momentum": 0.9})


class FineTuning(kit.TestCase):
    def setUp(self):
        super().setUp()
        kit.write(self.path("net.toml"), NET)
        self.records(24)

    def run_with(self, directory, ranks=2, **changes):
        """Trains with these keys (section__key) and returns the arrays of the last checkpoint."""
        self.result = self.train(ranks, self.config({"checkpoint.directory": directory, **self.keys(changes)}, BASE))
        return kit.datasets(self.path(directory, "latest"))

    @staticmethod
    def keys(changes):
        return {key.replace("__", "."): value for key, value in changes.items()}

    def explained(self, **changes):
        # Winograd's workspace does not depend on what is trained.
        result = self.run_job(0, "explain", "--config", self.config({"device.winograd": False, **self.keys(changes)}, BASE))
        self.assertEqual(result.code, kit.OK, str(result))
        return result.output

    def test_frozen_layers_give_the_bits_of_a_learning_rate_of_zero(self):
        frozen = self.run_with("frozen", train__freeze=["stem*", "body.bn"])
        self.assertIn("2970 parameters (496 of them frozen), 5 steps", self.result.output)
        halted = self.run_with("halted", train__freeze_batch_norm=["stem*", "body.bn"],
                               optimizer__lr_factors=["stem=0", "body.bn=0"])
        start = self.run_with("start", ranks=1, train__steps=1, optimizer__lr_factors=["*=0"],
                              train__freeze_batch_norm=["*"])
        names = {name for name in halted if name.startswith("model/")}
        self.assertEqual({name for name in frozen if name.startswith("model/")}, names)
        for name in names:
            self.assertEqual(frozen[name].tobytes(), halted[name].tobytes(), name)
            kept = name.startswith(("model/stem.", "model/body.bn."))
            self.assertEqual(frozen[name].tobytes() == start[name].tobytes(), kept, name)
        slots = {name for name in frozen if name.startswith("optimizer/")}
        self.assertEqual(slots, {f"optimizer/momentum/{name}" for name in ("body.conv.weight", "fc.weight", "fc.bias")})

    def test_explain_shows_what_frozen_layers_save(self):
        full, head = self.explained(), self.explained(train__freeze=["stem", "body"], optimizer__lr_factors=["fc=10"])

        def number(text, pattern):
            return float(re.search(pattern, text).group(1))

        self.assertIn("file: 2970 trained parameters,", full)
        self.assertIn("file: 170 trained parameters and 2800 frozen,", head)
        self.assertRegex(head, r"\nstem\.conv +Conv2d .* 432 +\d+  frozen\n")
        self.assertRegex(head, r"\nfc +Linear .* 170 +\d+  learning rate x 10\n")
        for pattern in (r"([0-9.]+) million backward", r"gradients and moments +([0-9.]+) MB",
                        r"activations and workspaces +([0-9.]+) MB"):
            self.assertLess(number(head, pattern), 0.7 * number(full, pattern) + 1e-9, pattern)
        forward = r"([0-9.]+) million multiply-adds forward"
        self.assertEqual(number(head, forward), number(full, forward))

    def test_patterns_and_factors_that_do_not_fit_are_one_error(self):
        for key, value, *texts in (
                ("train.freeze", ["stem", "boddy*"], '"boddy*" matches no parameter of the model; did you mean body'),
                ("train.freeze", ["*"], "nothing is left to train"),
                ("train.freeze_batch_norm", ["fc"], 'train.freeze_batch_norm: "fc" matches no batch normalization'),
                ("optimizer.lr_factors", ["fd=2"], 'optimizer.lr_factors: "fd" matches no trained parameter',
                 "did you mean fc?"),
                ("optimizer.lr_factors", ["fc"], 'the form "PATTERN=FACTOR"')):
            result = self.run_job(2, "--config", self.config({key: value}, BASE))
            self.assert_one_error(result, kit.CONFIG, *texts)

    def test_a_run_goes_on_with_other_layers_frozen(self):
        self.run_with("run", train__freeze=["stem", "body"])
        before = kit.datasets(self.path("run", "latest"))
        after = self.run_with("run", train__freeze=["stem"], train__steps=7)
        self.assertIn('was trained with train.freeze = ["stem", "body"], this run has ["stem"]', self.result.output)
        self.assertIn("optimizer/momentum/body.conv.weight", after)
        for name in ("stem.conv.weight", "stem.bn.running_mean", "body.conv.weight", "body.bn.running_mean", "fc.bias"):
            same = before["model/" + name].tobytes() == after["model/" + name].tobytes()
            self.assertEqual(same, name.startswith("stem."), name)
        self.assertEqual(self.run_job(1, "evaluate", "run", "--data.validation", "train.tfrecord").code, kit.OK)

    def test_a_run_starts_from_a_network_whose_last_norm_sees_one_pixel(self):
        kit.write(self.path("net.toml"), NET.replace('"pool" },', '"pool" },\n  { op = "batch_norm", name = "last" },'))
        first = self.run_with("first", ranks=1)
        second = self.run_with("second", ranks=1, checkpoint__init_from="first/latest", optimizer__lr_factors=["*=0"])
        for name in ("last.weight", "fc.weight"):
            self.assertEqual(second["model/" + name].tobytes(), first["model/" + name].tobytes())

    def test_a_run_starts_from_safetensors(self):
        self.run_with("first", ranks=1)
        self.assertEqual(self.run_job(0, "export", "first", "--to", "weights.safetensors").code, kit.OK)
        with h5py.File(self.path("first", "latest")) as file:
            given = {name: item[()] for name, item in file["model"].items()}
        config = {"model__classes": 12, "optimizer__lr_factors": ["*=0"], "train__freeze_batch_norm": ["*"]}
        counters = {"stem.bn.num_batches_tracked": numpy.array([7], numpy.int64)}
        kit.write_safetensors(self.path("wrapped.safetensors"),
                          {"module." + name: array for name, array in {**given, **counters}.items()})
        for name in ("weights", "wrapped"):
            tuned = self.run_with(name, checkpoint__init_from=name + ".safetensors", **config)
            self.assert_once(self.result, f"{name}.safetensors; fc start from fresh values (the file has 10 classes, "
                                          "the model 12)")
            for parameter, array in given.items():
                if not parameter.startswith("fc."):
                    self.assertEqual(tuned["model/" + parameter].tobytes(), array.tobytes(), parameter)
            self.assertEqual(tuned["model/fc.weight"].shape, (12, 16))
        self.assertIn('every name starts with "module.", which is left out', self.result.output)

        def refused(arrays, code, *texts):
            kit.write_safetensors(self.path("bad.safetensors"), arrays)
            result = self.run_job(2, "--config", self.config({"checkpoint.directory": "bad",
                                                              "checkpoint.init_from": "bad.safetensors"}, BASE))
            self.assert_one_error(result, code, "bad.safetensors", *texts)

        misfit = {**given, "aux.weight": given["fc.weight"], "stem.bn.bias": given["fc.bias"]}
        del misfit["body.bn.bias"]
        refused(misfit, kit.CONFIG, "body.bn.bias is missing, the model wants [16]", "checkpoint.init_exclude",
                "aux.weight [10,16] is not in the model", "stem.bn.bias is [10] in the file and [16] in the model")
        refused({**given, "fc.bias": numpy.full(10, numpy.nan, numpy.float32)}, kit.NUMERICS, "fc.bias", "not finite")


if __name__ == "__main__":
    kit.main()
