"""The tutorial does what it says: every command of docs/tutorial.md, as printed."""

import importlib.util
import os
import re
import subprocess
import sys

import kit

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
NEEDED = ("onnxruntime", "safetensors", "tensorboard", "matplotlib")


class Tutorial(kit.TestCase):
    def blocks(self):
        with open(os.path.join(DOCS, "tutorial.md"), encoding="utf-8") as file:
            return re.findall(r"^```sh\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)

    def test_every_command_works_as_printed(self):
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            self.skipTest(f"not installed: {missing}: scripts/install_python_packages.sh does that")
        for name, count in (("train", 48), ("validation", 24)):
            subprocess.run([os.environ["LOCKSTEP_IMAGE_FOLDER"], self.path("photos", name), str(count)], check=True)
        path = os.pathsep.join([os.path.dirname(kit.TRAINER), os.path.dirname(sys.executable),
                                os.path.dirname(kit.MPIRUN), os.path.join(DOCS, "../scripts"), os.environ["PATH"]])
        outputs = []
        for block in self.blocks():
            job = self.start_command(["bash", "-euo", "pipefail", "-c", block], env={"PATH": path})
            result = job.wait()
            self.assertEqual(result.code, kit.OK, f"{block}\n{result}")
            outputs.append(result.output)
        everything = "".join(outputs)
        for text in ("resuming at step", "evaluation at step 120 (ema weights)", "(3, 192)", "inception",
                     "whole: the checksum is right", "  bee    photos/validation/bee/",
                     "input,rank,class,name,probability,label"):
            self.assertIn(text, everything)
        self.assertGreaterEqual(kit.metrics(self.path("runs/photos"), "eval")[-1]["top1"], 0.9)  # the classes differ clearly


if __name__ == "__main__":
    kit.main()
