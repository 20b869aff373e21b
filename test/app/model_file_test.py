"""A network of the user's own: the example of docs/model_files.md trains, resumes, and needs no file afterwards."""

import os
import re

import kit

PAGE = os.path.join(os.path.dirname(__file__), "../../docs/model_files.md")


class ModelFile(kit.TestCase):
    def setUp(self):
        super().setUp()
        with open(PAGE) as page:
            net, run = re.findall(r"```toml\n(.*?)```", page.read(), re.S)
        self.net = net
        kit.write(self.path("net.toml"), net.encode())
        self.run_file = kit.write(self.path("run.toml"), run.encode())

    def run_alone(self, *arguments):
        result = self.run_job(0, *arguments)
        self.assertEqual(result.code, kit.OK, str(result))
        return result

    def test_the_example_trains_and_resumes_to_the_same_bits(self):
        self.train(2, self.run_file, {"checkpoint.directory": "whole"})
        self.train(2, self.run_file, {"checkpoint.directory": "parts", "train.steps": 6, "checkpoint.every_steps": 3})
        for name in ("step-00000006.h5", "latest", "best"):
            if os.path.lexists(self.path("parts", name)):
                os.remove(self.path("parts", name))
        self.assertEqual(kit.checkpoints(self.path("parts")), ["step-00000003.h5"])
        result = self.train(2, self.run_file, {"checkpoint.directory": "parts"})
        self.assertIn("step-00000003.h5", result.output)
        whole, parts = (kit.datasets(self.path(run, "step-00000006.h5")) for run in ("whole", "parts"))
        self.assertIn("model/res2.conv1.bn.running_var", whole)
        self.assertEqual(whole.keys(), parts.keys())
        for key in whole.keys() - {"config"}:
            self.assertEqual(whole[key].tobytes(), parts[key].tobytes(), key)

    def test_a_checkpoint_needs_no_file_and_no_other_definition(self):
        self.train(2, self.run_file)
        kit.write(self.path("net.toml"), self.net.replace("kernel = 2, stride = 2", "kernel = 2, stride = 1").encode())
        result = self.run_job(2, "--config", self.run_file, "--train.steps", "8")
        self.assert_one_error(result, kit.CONFIG, "was trained with another definition of the network", "net.toml")
        os.remove(self.path("net.toml"))
        result = self.run_job(2, "--config", self.run_file)
        self.assert_one_error(result, kit.CONFIG, "net.toml")
        self.assertEqual(
            self.run_job(2, "evaluate", "--checkpoint", "run/latest", "--data.validation", "any").code, kit.OK)
        self.run_alone("export", "run/latest", "--to", "net.onnx")
        self.assertIn("model file, global batch 16 on 2 ranks", self.run_alone("inspect", "run/latest").output)

    def test_explain_prints_the_layers_and_a_broken_file_is_one_error(self):
        result = self.run_alone("explain", "--config", self.run_file)
        self.assertRegex(result.output, r"res2\.conv1\.conv +Conv2d +\[8,8,8,8\]")
        kit.write(self.path("net.toml"), self.net.replace("kernel = 2", "kernal = 2").encode())
        for ranks in (1, 2):
            result = self.run_job(ranks, "--config", self.run_file)
            self.assert_one_error(result, kit.CONFIG,
                                  "net.toml:5: layer pool: unknown key kernal; did you mean kernel?")

    def test_an_onnx_file_gives_its_network_and_weights(self):
        """The file is our own; what PyTorch writes is compared in the golden tests."""
        self.train(1, self.run_file)
        self.run_alone("export", "run/latest", "--to", "net.onnx")
        with open(self.run_file, "rb") as file:
            run_file = kit.write(self.path("onnx.toml"), file.read().replace(b"net.toml", b"net.onnx"))
        self.assertIn('{ op = "batch_norm", name = "res1.conv1.bn", epsilon = 1e-05 },',
                      self.run_alone("explain", "--config", run_file).output)
        self.run_alone("import", "net.onnx", "--to", "imported.h5")
        imported = kit.datasets(self.path("imported.h5"))
        self.assertIn("model/res1.conv1.bn.running_var", imported)
        for key, values in kit.datasets(self.path("run/latest")).items():
            if key.startswith("model/"):
                self.assertEqual(imported[key].tobytes(), values.tobytes(), key)
        kept = {"checkpoint.directory": "next", "optimizer.lr": 1e-30}
        result = self.train(2, run_file, kept)
        self.assertIn("net.onnx", result.output)
        self.assertIn("weights from", result.output)
        before, after = kit.datasets(self.path("run/latest")), kit.datasets(self.path("next/latest"))
        for key in before:
            if key.startswith("model/") and "running" not in key:
                self.assertEqual(before[key].tobytes(), after[key].tobytes(), key)
        result = self.train(2, run_file, {"checkpoint.directory": "more", "model.classes": 11})
        self.assertIn("fc start from fresh values (the file has 10 classes, the model 11)", result.output)
        self.assert_once(result, "model.classes = 11 (command line) takes the place of 10 in ")
        os.remove(self.path("net.onnx"))
        self.assertEqual(
            self.run_job(2, "evaluate", "--checkpoint", "next/latest", "--data.validation", "any").code, kit.OK)
        self.run_alone("export", "next/latest", "--to", "again.onnx")
        with open(self.path("again.onnx"), "rb") as file:
            kit.write(self.path("net.onnx"), file.read().replace(b"\x22\x04Relu", b"\x22\x04Tanh"))
        result = self.run_job(2, "--config", run_file)
        self.assert_one_error(result, kit.CONFIG, "net.onnx: node stem.relu (Tanh): there is no layer for this operation")


if __name__ == "__main__":
    kit.main()
