"""Every data format trains, evaluates and resumes."""

import os
import subprocess

import h5py
import numpy

import kit


class Formats(kit.TestCase):
    def train_on(self, name, train, validation, examples, **changes):
        config = self.config({"data.format": name, "data.train": train, "data.validation": validation,
                              "data.augment": "inception", "train.steps": 30, "optimizer.lr": 0.02,
                              **{key.replace("__", "."): value for key, value in changes.items()}})
        self.train(2, config, {"train.steps": 10})
        result = self.train(2, config)
        self.assert_once(result, "resuming at step 10")
        losses = kit.per_step(self.path("run"), "loss")
        self.assertEqual(sorted(losses), list(range(1, 31)))
        self.assertLess(sum(losses[i] for i in range(26, 31)), sum(losses[i] for i in range(1, 6)))
        evaluations = kit.metrics(self.path("run"), "eval")
        self.assertEqual([row["examples"] for row in evaluations[-1:]], [examples] if examples else [])

    def test_directories_of_jpegs(self):
        for name, count in (("train", 60), ("validation", 20)):
            subprocess.run([os.environ["LOCKSTEP_IMAGE_FOLDER"], self.path(name), str(count)], check=True)
        self.train_on("folder", "train", "validation", 20, model__classes=3)

    # Class directories of names that are no identifiers; a shell's locale must not matter.
    def test_checkpoints_name_the_classes_of_directories(self):
        names = ["-dash", "A b", "bad\udcff", "c\\d", "ü 猫"]
        for split in ("train", "validation"):
            for i, name in enumerate(sorted(names, key=os.fsencode)):
                for j, (encoded, _) in enumerate(kit.images(6, seed=i)):
                    os.makedirs(self.path(split, name), exist_ok=True)
                    kit.write(self.path(split, name, f"{j}.JPEG"), encoded)
        stored = ["-dash", "A b", "bad\\xff", "c\\x5cd", "ü 猫"]
        config = self.config({"data.format": "folder", "data.train": "train", "data.validation": "validation",
                              "model.classes": 7, "train.steps": 2})
        self.train(2, config, env={"LANG": "C", "LC_ALL": "C"})
        with h5py.File(self.path("run/latest")) as file:
            self.assertEqual(list(file["classes"].asstr()[()]), stored)
        dump = subprocess.run(["h5dump", "-d", "/classes", self.path("run/latest")], capture_output=True, check=True)
        self.assertIn('"-dash", "A b", "bad\\xff", "c\\x5cd"', dump.stdout.decode())
        inspected = self.run_job(0, "inspect", self.path("run/latest"))
        self.assert_once(inspected, f"5 classes: {', '.join(stored)}")

        os.rename(self.path("validation", "A b"), self.path("validation", "x"))
        result = self.run_job(2, "--config", config, "--train.steps", "4")
        self.assert_one_error(result, kit.DATA, "class 1 is 'A b' in data.train and 'bad\\xff' in data.validation")
        result = self.run_job(2, "evaluate", "--config", config, "--checkpoint", "latest")
        self.assert_one_error(result, kit.DATA, "class 1 is 'A b'", "step-00000002.h5 and 'bad\\xff' in the data")

        os.rename(self.path("train", "A b"), self.path("train", "x"))
        result = self.run_job(2, "--config", config, "--train.steps", "4")
        self.assert_one_error(result, kit.DATA, "class 1 is 'A b'", "step-00000002.h5 and 'bad\\xff' in the data")
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000002.h5"])
        # Classes that come after all others move none.
        for split in ("train", "validation"):
            os.rename(self.path(split, "x"), self.path(split, "A b"))
            os.makedirs(self.path(split, "ü 猫2"))
        self.train(2, config, {"train.steps": 4})

    def test_tfrecords_in_several_files(self):
        for i in range(3):
            self.records(20, f"train-{i}", seed=i)
        self.records(25, "validation-0", seed=9)
        self.train_on("tfrecord", "train-*", "validation-*", 25)

    def test_hdf5(self):
        random = numpy.random.default_rng(1)
        for name, count in (("train.h5", 60), ("validation.h5", 25)):
            labels = numpy.arange(count) % 10
            pixels = random.integers(0, 100, (count, 3, 16, 16)) + 15 * labels[:, None, None, None]
            with h5py.File(self.path(name), "w") as file:
                file["images"] = pixels.astype(numpy.uint8)
                file["labels"] = labels
        self.train_on("hdf5", "train.h5", "validation.h5", 25)

    def test_cifar_10(self):
        random = numpy.random.default_rng(1)
        for name, count in (("train.bin", 60), ("validation.bin", 25)):
            labels = numpy.arange(count) % 10
            pixels = random.integers(0, 100, (count, 3072)) + 15 * labels[:, None]
            kit.write(self.path(name), numpy.hstack([labels[:, None], pixels]).astype(numpy.uint8).tobytes())
        self.train_on("cifar10", "train.bin", "validation.bin", 25)

    def test_synthetic(self):
        self.train_on("synthetic", [], [], 0)


if __name__ == "__main__":
    kit.main()
