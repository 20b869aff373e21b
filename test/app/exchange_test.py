"""Weights go to other programs and come back: read and run by the other side itself, where it is installed."""

import json
import os
import struct
import subprocess

import h5py
import numpy

import kit

try:
    import onnxruntime
except ImportError:
    onnxruntime = None
try:
    import safetensors.numpy
except ImportError:
    safetensors = None

ABSENT = "the Python package {} is not installed: scripts/install_python_packages.sh does that"
TINY = {"data.format": "synthetic", "data.train": None, "data.augment": None, "train.steps": 2, "train.batch_size": 2}


class Case(kit.TestCase):
    def trained(self, **changes):
        """A checkpoint of a short run."""
        self.train(1, self.config({**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}))
        return self.path("run/latest")

    def convert(self, *arguments, code=kit.OK):
        result = self.run_job(0, *arguments)
        self.assertEqual(result.code, code, str(result))
        return result

    def arrays(self, checkpoint, group="model"):
        with h5py.File(checkpoint) as file:
            return {name: data[()] for name, data in file[group].items()}

    def assert_same(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name, array in expected.items():
            self.assertEqual(found[name].dtype, numpy.float32, name)
            self.assertEqual(found[name].shape, array.shape, name)
            self.assertEqual(found[name].tobytes(), array.tobytes(), name)

    def assert_onnx_agrees(self, checkpoint, *flags):
        """onnxruntime's logits are ours, of a batch of three samples and of one."""
        if onnxruntime is None:
            self.skipTest(ABSENT.format("onnxruntime"))
        group = "ema" if "--ema" in flags else "model"
        subprocess.run([os.environ["LOCKSTEP_LOGITS_TOOL"], checkpoint, group, self.path("ours.h5")], check=True)
        self.convert("export", checkpoint, "--to", self.path("model.onnx"), *flags)
        with h5py.File(self.path("ours.h5")) as file:
            inputs = {name: file[name][()] for name in file if name != "logits"}
            logits = file["logits"][()]
        if "ids" in inputs:
            inputs["ids"] = inputs["ids"].astype(numpy.int64)
        session = onnxruntime.InferenceSession(self.path("model.onnx"), providers=["CPUExecutionProvider"])
        self.assertEqual({given.name for given in session.get_inputs()}, set(inputs))
        for count in (len(logits), 1):
            theirs = session.run(["logits"], {name: array[:count] for name, array in inputs.items()})[0]
            self.assertEqual(theirs.shape, logits[:count].shape)
            error = abs(theirs - logits[:count]).max() / abs(logits[:count]).max()
            self.assertLess(error, 1e-4)
        self.assertEqual(session.get_modelmeta().custom_metadata_map["weights"], "ema" if group == "ema" else "raw")


class Exchange(Case):
    def test_hdf5_files_hold_the_weights_by_name(self):
        checkpoint = self.trained(ema__decay=0.9)
        for flags, group in (([], "model"), (["--ema"], "ema")):
            self.convert("export", checkpoint, "--to", "weights.h5", *flags)
            self.assert_same(kit.datasets(self.path("weights.h5")), self.arrays(checkpoint, group))

    def test_safetensors_are_read_by_their_own_library(self):
        if safetensors is None:
            self.skipTest(ABSENT.format("safetensors"))
        checkpoint = self.trained()
        self.convert("export", checkpoint, "--to", "weights.safetensors")
        self.assert_same(safetensors.numpy.load_file(self.path("weights.safetensors")), self.arrays(checkpoint))

    def test_what_their_library_writes_is_imported_and_comes_back_to_the_bit(self):
        if safetensors is None:
            self.skipTest(ABSENT.format("safetensors"))
        given = self.arrays(self.trained(model__image_size=32))  # as in its recipe
        counters = {"bn1.num_batches_tracked": numpy.array(5, numpy.int64)}
        safetensors.numpy.save_file({**given, **counters}, self.path("theirs.safetensors"))
        result = self.convert("import", "theirs.safetensors", "--to", "imported.h5")
        self.assertIn("1 counters num_batches_tracked left out", result.output)
        self.convert("inspect", "imported.h5", "--verify")
        self.convert("export", "imported.h5", "--to", "back.safetensors")
        self.assert_same(safetensors.numpy.load_file(self.path("back.safetensors")), given)

    def test_a_run_starts_from_what_was_imported(self):
        checkpoint = self.trained()
        self.convert("export", checkpoint, "--to", "weights.h5")
        self.convert("import", "weights.h5", "--to", "imported.h5", "--config", self.path("run.toml"))
        self.assert_same(self.arrays(self.path("imported.h5")), self.arrays(checkpoint))
        config = self.config({**TINY, "checkpoint.directory": "next", "checkpoint.init_from": "imported.h5"},
                             name="next.toml")
        self.assertIn("weights from", self.train(1, config).output)

    def test_the_background_class_is_dropped_on_request(self):
        checkpoint = self.trained(model__classes=11)
        before = self.arrays(checkpoint)
        self.convert("export", checkpoint, "--to", "ten.h5", "--drop_background")
        expected = {name: array[1:] if name.startswith("fc5.") else array for name, array in before.items()}
        self.assert_same(kit.datasets(self.path("ten.h5")), expected)
        self.convert("export", checkpoint, "--to", "eleven.h5")
        self.convert("import", "eleven.h5", "--to", "imported.h5", "--drop_background", "--config",
                     self.path("run.toml"))
        self.assert_same(self.arrays(self.path("imported.h5")), expected)

    def test_names_of_wrapped_models_are_recognized_and_others_are_shown(self):
        given = self.arrays(self.trained(model__image_size=32))
        kit.write_safetensors(self.path("compiled.safetensors"), {"_orig_mod.module." + name: a for name, a in given.items()})
        result = self.convert("import", "compiled.safetensors", "--to", "imported.h5")
        self.assertIn('every name starts with "_orig_mod.module.", which is left out', result.output)
        self.assert_same(self.arrays(self.path("imported.h5")), given)
        with h5py.File(self.path("model.h5"), "w") as file:
            for name, array in given.items():
                file["model." + name] = array
        result = self.convert("import", "model.h5", "--to", "imported.h5", "--config", self.path("run.toml"))
        self.assertEqual(result.output.count('every name starts with "model."'), 1)
        self.assert_same(self.arrays(self.path("imported.h5")), given)
        kit.write_safetensors(self.path("other.safetensors"), {"net." + name: array for name, array in given.items()})
        result = self.convert("import", "other.safetensors", "--to", "no.h5", code=kit.CONFIG)
        self.assertIn("names are no bundled model's", result.output)
        self.assertIn("net.conv1.bias", result.output)
        result = self.convert("import", "other.safetensors", "--to", "no.h5", "--config", self.path("run.toml"),
                              code=kit.CONFIG)
        self.assertIn("conv1.weight is missing", result.output)
        self.assertIn("net.conv1.bias is not the model's", result.output)

    def test_weights_that_are_not_finite_are_refused(self):
        given = self.arrays(self.trained(model__image_size=32))
        given["fc4.bias"][3] = numpy.nan
        kit.write_safetensors(self.path("nan.safetensors"), given)
        result = self.convert("import", "nan.safetensors", "--to", "no.h5", code=kit.NUMERICS)
        self.assertIn("nan.safetensors: 1 of the", result.output)
        self.assertIn("fc4.bias are not finite", result.output)
        self.assertFalse(os.path.exists(self.path("no.h5")))

    def test_hostile_files_end_at_once_with_their_name(self):
        hostile = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../hostile")
        for name, reason in (("hdf5_group_cycle.h5", "one may contain itself"),
                             ("hdf5_weights_8GB.h5", r"\[2147483648\], is of more chunks"),
                             ("hdf5_weights_slow_60s.h5", r"\[33554432,3,1,1\], is of more chunks|cannot open conv.weight: "),
                             ("hdf5_external_storage.h5", "keeps its values in another file, /etc/passwd"),
                             ("hdf5_images_overflow_segv.h5", "is of more values than memory can hold")):
            result = self.convert("import", os.path.join(hostile, name), "--to", "no.h5", code=kit.CHECKPOINT)
            self.assertIn(name, result.output)
            self.assertRegex(result.output, reason)
        os.mkfifo(self.path("pipe.h5"))
        os.mkfifo(self.path("pipe.safetensors"))
        for command in (["inspect", "pipe.h5"], ["export", "pipe.h5", "--to", "no.h5"],
                        ["import", "pipe.h5", "--to", "no.h5"], ["import", "pipe.safetensors", "--to", "no.h5"]):
            result = self.run_job(0, *command, timeout=30)
            self.assertEqual(result.code, kit.CHECKPOINT, str(result))
            self.assertIn("is a pipe, where a file is needed", result.output)

    def test_onnxruntime_computes_the_logits_of_the_convolutional_network(self):
        checkpoint = self.trained(ema__decay=0.5, model__classes=11)
        self.assert_onnx_agrees(checkpoint)
        self.assert_onnx_agrees(checkpoint, "--ema")

    def test_onnxruntime_computes_the_logits_of_inception(self):
        checkpoint = self.trained(model__name="inception_v3", model__image_size=75, train__batch_size=4)
        self.assert_onnx_agrees(checkpoint)
        self.assert_onnx_agrees(checkpoint, "--fold_batch_norm")

    def test_onnxruntime_computes_the_logits_of_resnet(self):
        checkpoint = self.trained(model__name="resnet50", model__image_size=64, train__batch_size=4)
        self.assert_onnx_agrees(checkpoint)
        self.assert_onnx_agrees(checkpoint, "--fold_batch_norm")

    def test_the_names_of_a_shallow_resnet_are_recognized(self):
        checkpoint = self.trained(model__name="resnet18", model__image_size=32)
        self.assert_onnx_agrees(checkpoint, "--fold_batch_norm")
        self.convert("export", checkpoint, "--to", "weights.h5")
        result = self.convert("import", "weights.h5", "--to", "imported.h5")
        self.assertIn("the names are those of resnet18: taken with the settings of the recipe resnet50_imagenet", result.output)
        self.assert_same(self.arrays(self.path("imported.h5")), self.arrays(checkpoint))

    def test_onnxruntime_computes_the_logits_of_the_network_for_sparse_samples(self):
        checkpoint = self.trained(model__name="wide_mlp", model__image_size=None, model__hidden=[16, 8],
                                  model__vocabulary=40, model__max_ids=6, model__classes=2, ema__decay=0.5)
        self.assert_onnx_agrees(checkpoint)
        self.assert_onnx_agrees(checkpoint, "--ema")

    def test_what_does_not_fit_is_refused_in_one_sentence(self):
        checkpoint = self.trained()
        self.convert("export", checkpoint, "--to", "weights.h5")
        kit.write(self.path("torn.safetensors"), struct.pack("<Q", 1000) + b"{")
        header = json.dumps({"a": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}).encode()
        kit.write(self.path("half.safetensors"), struct.pack("<Q", len(header)) + header + b"ab")
        for arguments, code, text in (
                (["export", checkpoint, "--to", "x.pt"], kit.CONFIG, "the ending must be"),
                (["export", checkpoint, "--to", "x.h5", "--ema"], kit.CONFIG, "no moving averages"),
                (["export", checkpoint, "--to", "x.h5", "--fold_batch_norm"], kit.CONFIG, "for .onnx files"),
                (["export", "nowhere.h5", "--to", "x.h5"], kit.CHECKPOINT, "nowhere.h5"),
                (["import", "torn.safetensors", "--to", "x.h5"], kit.CHECKPOINT, "torn.safetensors: not a safetensors"),
                (["import", "half.safetensors", "--to", "x.h5"], kit.CONFIG, "a is of type F16"),
                (["import", "weights.h5", "--to", "x.h5", "--config", "resnet50_imagenet", "--data.format",
                  "synthetic"], kit.CONFIG,
                 "conv1.weight is [64,3,5,5] in the file and [64,3,7,7] in the model"),
        ):
            self.assert_one_error(self.run_job(0, *arguments), code, text)
            self.assertFalse(os.path.exists(self.path(arguments[3])), arguments)


class Slow(Case):
    def test_torchvision_loads_the_weights_and_computes_the_logits(self):
        try:
            import torch
            import torchvision
        except ImportError:
            self.skipTest(ABSENT.format("torch"))
        if safetensors is None:
            self.skipTest(ABSENT.format("safetensors"))
        models = {"inception_v3": {"aux_logits": False, "init_weights": False}, "resnet18": {}, "resnet50": {}}
        for name, options in models.items():
            with self.subTest(name):
                theirs = getattr(torchvision.models, name)(num_classes=10, **options).eval()
                state = {key: value.numpy() for key, value in theirs.state_dict().items()}
                safetensors.numpy.save_file(state, self.path("theirs.safetensors"))
                self.convert("import", "theirs.safetensors", "--to", "imported.h5")
                self.convert("export", "imported.h5", "--to", "back.safetensors")
                back = safetensors.numpy.load_file(self.path("back.safetensors"))
                self.assert_same(back, {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")})
                theirs.load_state_dict({key: torch.from_numpy(value) for key, value in back.items()})  # strict
                subprocess.run([os.environ["LOCKSTEP_LOGITS_TOOL"], self.path("imported.h5"), "model",
                                self.path("ours.h5")], check=True)
                with h5py.File(self.path("ours.h5")) as file, torch.no_grad():
                    logits = theirs(torch.from_numpy(file["images"][()])).numpy()
                    error = abs(logits - file["logits"][()]).max() / abs(logits).max()
                self.assertLess(error, 1e-4)


if __name__ == "__main__":
    kit.main()
