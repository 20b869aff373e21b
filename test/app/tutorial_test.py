"""The tutorials do what they say: every command of docs/tutorial.md and docs/fine_tuning.md, as printed."""

import importlib.util
import os
import re
import subprocess
import sys

import numpy

import kit

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
NEEDED = ("onnxruntime", "safetensors", "tensorboard", "matplotlib")


class Tutorial(kit.TestCase):
    def run_page(self, name):
        """Runs the commands of a page of the manual, and returns what they print."""
        with open(os.path.join(DOCS, name), encoding="utf-8") as file:
            blocks = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        path = os.pathsep.join([os.path.dirname(kit.TRAINER), os.path.dirname(sys.executable),
                                os.path.dirname(kit.MPIRUN), os.path.join(DOCS, "../scripts"), os.environ["PATH"]])
        outputs = []
        for block in blocks:
            job = self.start_command(["bash", "-euo", "pipefail", "-c", block], env={"PATH": path})
            result = job.wait()
            self.assertEqual(result.code, kit.OK, f"{block}\n{result}")
            outputs.append(result.output)
        return "".join(outputs)

    def test_every_command_of_the_tutorial_works_as_printed(self):
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            self.skipTest(f"not installed: {missing}: scripts/install_python_packages.sh does that")
        for name, count in (("train", 48), ("validation", 24)):
            subprocess.run([os.environ["LOCKSTEP_IMAGE_FOLDER"], self.path("photos", name), str(count)], check=True)
        printed = self.run_page("tutorial.md")
        for text in ("resuming at step", "evaluation at step 120 (ema weights)", "(3, 192)", "inception",
                     "whole: the checksum is right", "  bee    photos/validation/bee/",
                     "input,rank,class,name,probability,label", "photos/validation/cat/"):
            self.assertIn(text, printed)
        for run in ("runs/photos", "runs/own"):  # the classes differ clearly
            self.assertGreaterEqual(kit.metrics(self.path(run), "eval")[-1]["top1"], 0.9)

    def test_every_command_of_fine_tuning_works_as_printed(self):
        random = numpy.random.default_rng(1)
        for label, name in enumerate(("daisy", "dandelion", "roses", "sunflowers", "tulips")):
            for i in range(12):
                pixels = random.integers(0, 64, (72, 80, 3), dtype=numpy.uint8)
                pixels[:, :, :] += numpy.array([(180, 180, 180), (180, 0, 0), (0, 180, 0), (0, 0, 180), (0, 0, 0)],
                                               numpy.uint8)[label]
                kit.write(self.path("flower_photos", name, f"{i}.png"), kit.png(pixels))
        kit.write_safetensors(self.path("resnet18.safetensors"), resnet18_weights(random))
        printed = self.run_page("fine_tuning.md")
        for text in ("resnet18: 2565 trained parameters and 11176512 frozen",
                     "fc start from fresh values (the file has 1000 classes, the model 5)",
                     "11179077 parameters (11176512 of them frozen)", "flower_photos/tulips/"):
            self.assertIn(text, printed)
        weights = {run: kit.datasets(self.path(run, "latest")) for run in ("runs/head", "runs/flowers")}
        for name in weights["runs/head"]:
            if name.startswith("model/"):
                same = weights["runs/head"][name].tobytes() == weights["runs/flowers"][name].tobytes()
                self.assertEqual(same, not re.match(r"model/(fc|layer4.*\.(weight|bias)$)", name), name)
        self.assertGreaterEqual(kit.metrics(self.path("runs/flowers"), "eval")[-1]["top1"], 0.8)


def resnet18_weights(random):
    """Random values under the names and in the shapes of torchvision's state dict, counters included."""
    tensors = {}

    def norm(name, channels, scale=1.0):
        tensors.update({f"{name}.weight": numpy.full(channels, scale), f"{name}.bias": numpy.zeros(channels),
                        f"{name}.running_mean": numpy.zeros(channels), f"{name}.running_var": numpy.ones(channels),
                        f"{name}.num_batches_tracked": numpy.array([1], numpy.int64)})

    def conv(name, outputs, inputs, kernel):
        fan_in = inputs * kernel * kernel
        tensors[f"{name}.weight"] = random.standard_normal((outputs, inputs, kernel, kernel)) * (2 / fan_in) ** 0.5

    conv("conv1", 64, 3, 7)
    norm("bn1", 64)
    inputs = 64
    for stage in range(4):
        width = 64 << stage
        for block in range(2):
            name = f"layer{stage + 1}.{block}"
            for i, read in ((1, inputs), (2, width)):
                conv(f"{name}.conv{i}", width, read, 3)
                norm(f"{name}.bn{i}", width, 0.5)
            if inputs != width:
                conv(f"{name}.downsample.0", width, inputs, 1)
                norm(f"{name}.downsample.1", width)
            inputs = width
    tensors.update({"fc.weight": random.standard_normal((1000, 512)) * 0.01, "fc.bias": numpy.zeros(1000)})
    return {name: array if array.dtype == numpy.int64 else array.astype("<f4") for name, array in tensors.items()}


if __name__ == "__main__":
    kit.main()
