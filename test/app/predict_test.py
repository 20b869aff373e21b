"""Predicting single images and data sets, and what evaluation says of the same samples."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys

import numpy

import kit

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

PLOT = os.path.join(os.path.dirname(__file__), "../../scripts/plot.py")
CLASSES = ["ant", "bee, wild", "cat"]
SIDE = 16


def pixels(index):
    """An image whose class shows in its color, under noise that makes some predictions wrong."""
    noise = numpy.random.default_rng(index).integers(0, 200, (SIDE, SIDE, 3), dtype=numpy.uint8)
    noise[:, :, index % 3] += numpy.uint8(index % 40)
    return noise


class Case(kit.TestCase):
    def directory_of_images(self, name, count):
        """`count` images in class directories; returns their paths and labels in the order of the data set."""
        files = []
        for i in range(count):
            path = os.path.join(name, CLASSES[i % 3], f"{i:03}.png")
            kit.write(self.path(path), kit.png(pixels(i)))
            files.append((path, i % 3))
        return sorted(files)

    def trained(self, **changes):
        """The directory of a short run on images in class directories."""
        self.files = self.directory_of_images("photos/train", 90)
        config = self.config({"data.format": "folder", "data.train": "photos/train", "data.validation": "photos/train",
                              "model.classes": 3, "train.batch_size": 15, "train.steps": 12, "eval.every_epochs": 0.0,
                              **{key.replace("__", "."): value for key, value in changes.items()}})
        self.train(1, config)
        return "run"

    def output_of(self, ranks, *arguments, code=kit.OK):
        """Standard output alone, and the result with the rest."""
        launcher = [kit.MPIRUN, "-np", str(ranks)] if ranks else []
        line = shlex.join([*launcher, kit.TRAINER, *arguments])
        result = self.start_command(["sh", "-c", f"{line} > out.txt"]).wait()
        self.assertEqual(result.code, code, str(result))
        with open(self.path("out.txt"), encoding="utf-8") as file:
            return file.read(), result

    def predicted(self, ranks, *arguments, code=kit.OK):
        """{input: [(class, name, probability), ...]} from CSV; inputs in the order of the output."""
        text, _ = self.output_of(ranks, "predict", *arguments, "--format", "csv", code=code)
        found = {}
        for row in csv.DictReader(io.StringIO(text)):
            best = found.setdefault(row["input"], [])
            best.append((int(row["class"]), row["name"], float(row["probability"])))
            self.assertEqual(int(row["rank"]), len(best))
        return found


class Predict(Case):
    def test_images_are_predicted_in_their_order_on_any_number_of_ranks(self):
        run = self.trained()
        images = [path for path, _ in self.files][7:0:-1]
        first = self.predicted(1, run, *images)
        self.assertEqual(list(first), images)
        for best in first.values():
            self.assertEqual([CLASSES[number] for number, _, _ in best], [name for _, name, _ in best])
            probabilities = [probability for _, _, probability in best]
            self.assertEqual(probabilities, sorted(probabilities, reverse=True))
            self.assertAlmostEqual(sum(probabilities), 1, delta=1e-5)
        for ranks in (0, 2, 3):
            other = self.predicted(ranks, run, *images)
            self.assertEqual(list(other), images)
            self.assertEqual(other, first)

    def test_a_directory_stands_for_the_images_below_it(self):
        run = self.trained()
        kit.write(self.path("photos/train/.hidden/x.png"), kit.png(pixels(0)))
        kit.write(self.path("photos/train/notes.txt"), "no image")
        for checkpoint in (run, "run/latest", "run/step-00000012.h5"):
            found = self.predicted(0, checkpoint, "photos/train", "--top", "1")
            self.assertEqual(list(found), [path for path, _ in self.files])
            self.assertEqual({len(best) for best in found.values()}, {1})

    def test_the_formats_say_the_same(self):
        run = self.trained(ema__decay=0.5)
        image = self.files[0][0]
        best = self.predicted(0, run, image, "--ema", "--top", "2")[image]
        text, result = self.output_of(0, "predict", run, image, "--ema", "--top", "2", "--format", "json")
        self.assertEqual(json.loads(text), [{"input": image, "predictions": [
            {"class": number, "name": name, "probability": probability} for number, name, probability in best]}])
        self.assertIn("weights of step 12 from run/step-00000012.h5", result.output)
        table = self.output_of(0, "predict", run, image, "--ema", "--top", "2")[0].splitlines()
        self.assertEqual(table[0].split(), ["probability", "class", "input"])
        self.assertEqual([line.split()[0] for line in table[1:]], [f"{p:.4f}" for _, _, p in best])
        self.assertTrue(all(line.endswith("  " + image) for line in table[1:]))
        plain = self.predicted(0, run, image, "--top", "2")[image]
        self.assertNotEqual(plain, best)

    def test_a_file_that_is_no_image_is_named_and_the_others_are_predicted(self):
        run = self.trained()
        kit.write(self.path("text.jpg"), "no image")
        good = self.files[0][0]
        for ranks in (1, 2):
            text, result = self.output_of(ranks, "predict", run, "text.jpg", good, "missing.png", "--top", "1",
                                          "--format", "json", code=kit.DATA)
            self.assertEqual([row["input"] for row in json.loads(text)], [good])
            self.assert_once(result, "text.jpg: ")
            self.assert_once(result, "missing.png: ")
            self.assert_one_error(result, kit.DATA, "2 of 3 images could not be read")
        text, _ = self.output_of(0, "predict", run, "text.jpg", "--format", "json", code=kit.DATA)
        self.assertEqual(json.loads(text), [])
        os.mkdir(self.path("empty"))
        self.assert_one_error(self.run_job(2, "predict", run, "empty"), kit.DATA, "empty: a directory without an image")

    def test_what_cannot_be_predicted_is_refused(self):
        run = self.trained()
        image = self.files[0][0]
        for arguments, code, text in (
                ([run], kit.CONFIG, "predict takes image files or directories, or --data FILES"),
                ([run, image, "--data", "photos/train"], kit.CONFIG, "not both"),
                ([run, image, "--ema"], kit.CONFIG, "leave --ema out"),
                (["nowhere.h5", image], kit.CHECKPOINT, "nowhere.h5"),
                ([run, image, "--top", "0"], kit.CONFIG, "--top"),
                ([run, image, "--format", "xml"], kit.CONFIG, "--format"),
                ([run, image, "--tob", "3"], kit.CONFIG, "--top")):
            self.assert_one_error(self.run_job(0, "predict", *arguments), code, text)

    def test_a_data_set_is_predicted_in_its_format_with_its_labels(self):
        run = self.trained()
        validation = self.directory_of_images("photos/validation", 20)
        text, _ = self.output_of(2, "predict", run, "--data", "photos/validation", "--top", "1", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([(os.path.relpath(row["input"], self.directory), int(row["label"])) for row in rows], validation)
        kit.write(self.path("records"), kit.tfrecord([(kit.png(pixels(i)), i % 3) for i in range(20)]))
        text, _ = self.output_of(0, "predict", run, "--data", "records", "--data.format", "tfrecord", "--top", "1",
                                 "--format", "csv")
        records = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([int(row["label"]) for row in records], [i % 3 for i in range(20)])
        by_name = {os.path.basename(row["input"]): row["probability"] for row in rows}
        for i, row in enumerate(records):
            self.assertAlmostEqual(float(row["probability"]), float(by_name[f"{i:03}.png"]), delta=2e-6)


    def test_without_names_classes_are_numbers(self):
        kit.write(self.path("records"), kit.tfrecord([(kit.png(pixels(i)), i % 3) for i in range(20)]))
        self.train(1, self.config({"data.train": "records", "model.classes": 3, "train.steps": 1}))
        kit.write(self.path("a.png"), kit.png(pixels(1)))
        best = self.predicted(0, "run", "a.png")["a.png"]
        self.assertEqual(sorted(best), sorted((number, "", probability) for number, _, probability in best))
        self.assertEqual({number for number, _, _ in best}, {0, 1, 2})
        table = self.output_of(0, "predict", "run", "a.png")[0].splitlines()[1:]
        self.assertEqual([line.split()[1] for line in table], [str(number) for number, _, _ in best])

    def test_a_model_that_takes_no_images_is_refused(self):
        kit.write(self.path("sparse"), kit.frame([kit.sparse_example(i % 2, [i], [1.0]) for i in range(8)]))
        self.train(1, self.config({"model.name": "wide_mlp", "model.classes": 2, "model.image_size": None,
                                   "model.hidden": [4], "model.vocabulary": 8, "model.max_ids": 2,
                                   "data.format": "sparse_tfrecord", "data.train": "sparse", "train.steps": 1}))
        kit.write(self.path("a.png"), kit.png(pixels(1)))
        self.assert_one_error(self.run_job(2, "predict", "run", "a.png"), kit.CONFIG,
                              "the checkpoint's model is wide_mlp, which takes no images: use --data FILES")
        text, _ = self.output_of(2, "predict", "run", "--data", "sparse", "--top", "1", "--format", "csv")
        self.assertEqual([row["label"] for row in csv.DictReader(io.StringIO(text))], ["0", "1"] * 4)


class Evaluate(Case):
    def confusion(self, path):
        """The matrix of a file; its rows and columns must have the names of the classes."""
        with open(self.path(path), newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        self.assertEqual(header, ["label", *CLASSES])
        self.assertEqual([row[0] for row in rows], CLASSES)
        return numpy.array([[int(count) for count in row[1:]] for row in rows])

    def table(self, result):
        """{class: (precision, recall, support)} of the printed table."""
        found = re.findall(r"^(\S.*?) +(0\.\d{4}|1\.0000|-) +(0\.\d{4}|1\.0000|-) +(\d+)$", result.output, re.MULTILINE)
        return {name: (precision, recall, int(support)) for name, precision, recall, support in found}

    def test_classes_are_counted_as_predict_predicts_them_on_any_number_of_ranks(self):
        run = self.trained(ema__decay=0.5)
        files = self.directory_of_images("photos/validation", 50)
        for flags in ([], ["--ema"]):
            predicted = self.predicted(0, run, "photos/validation", "--top", "1", *flags)
            expected = numpy.zeros((3, 3), int)
            for path, label in files:
                expected[label, predicted[path][0][0]] += 1
            for ranks in (0, 1, 3):
                result = self.run_job(ranks, "evaluate", run, "--data.validation", "photos/validation", "--per_class",
                                      "--confusion", "confusion.csv", *flags)
                self.assertEqual(result.code, kit.OK, str(result))
                numpy.testing.assert_array_equal(self.confusion("confusion.csv"), expected)
                table = self.table(result)
                self.assertEqual(list(table), CLASSES)
                for i, name in enumerate(CLASSES):
                    right, found, samples = expected[i, i], expected[:, i].sum(), expected[i].sum()
                    self.assertEqual(table[name], (f"{right / found:.4f}" if found else "-", f"{right / samples:.4f}",
                                                   samples))
                weights = "ema" if flags else "raw"
                self.assertIn(f"({weights} weights): top-1 {100 * expected.trace() / 50:.2f} % ({expected.trace()}/50)",
                              result.output)

    def test_what_cannot_be_reported_is_refused(self):
        run = self.trained()
        self.assert_one_error(self.run_job(2, "evaluate", run, "--per_class", "--ema"), kit.CONFIG, "leave --ema out")
        result = self.run_job(2, "evaluate", run, "--confusion", "missing/confusion.csv")
        self.assert_one_error(result, kit.CHECKPOINT, "missing/confusion.csv")
        self.assertIn("top-1", result.output)

    def test_the_plot_script_draws_the_confusion_matrix(self):
        try:
            import matplotlib  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            self.skipTest("the Python package matplotlib is not installed: scripts/install_python_packages.sh does that")
        kit.write(self.path("confusion.csv"), 'label,ant,"bee, wild",cat\nant,17,2,0\n"bee, wild",3,1,0\ncat,0,0,0\n')
        subprocess.run([sys.executable, PLOT, self.path("confusion.csv")], check=True)
        with open(self.path("confusion.png"), "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        with open(self.path("confusion.svg"), encoding="utf-8") as file:
            drawing = file.read()
        for text in ("bee, wild", "predicted", "17"):
            self.assertIn(f"<!-- {text} -->", drawing)


class Agreement(Case):
    def test_onnxruntime_counts_the_same_on_the_exported_model(self):
        if onnxruntime is None:
            self.skipTest("the Python package onnxruntime is not installed: scripts/install_python_packages.sh does that")
        run = self.trained()
        files = self.directory_of_images("photos/validation", 100)
        result = self.run_job(0, "export", run, "--to", "model.onnx")
        self.assertEqual(result.code, kit.OK, str(result))
        session = onnxruntime.InferenceSession(self.path("model.onnx"), providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
        self.assertEqual((metadata["normalize"], metadata["image_size"]), ("inception", str(SIDE)))
        images = numpy.stack([pixels(int(os.path.basename(path)[:3])) for path, _ in files])
        inputs = (images.astype(numpy.float32) / 255 * 2 - 1).transpose(0, 3, 1, 2)
        logits = session.run(["logits"], {"images": numpy.ascontiguousarray(inputs)})[0].astype(numpy.float64)
        exponents = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = exponents / exponents.sum(axis=1, keepdims=True)
        theirs = logits.argmax(axis=1)
        top1 = int((theirs == [label for _, label in files]).sum())
        self.assertTrue(0 < top1 < len(files), "the comparison needs right and wrong predictions")
        for ranks in (1, 3):
            found = self.predicted(ranks, run, "photos/validation")
            self.assertEqual(list(found), [path for path, _ in files])
            self.assertEqual([best[0][0] for best in found.values()], list(theirs))
            for best, expected in zip(found.values(), probabilities):
                for number, _, probability in best:
                    self.assertAlmostEqual(probability, expected[number], delta=1e-5)
            result = self.run_job(ranks, "evaluate", run, "--data.validation", "photos/validation", "--confusion", "c.csv")
            with open(self.path("c.csv"), newline="", encoding="utf-8") as file:
                counts = [[int(count) for count in row[1:]] for row in list(csv.reader(file))[1:]]
            expected = numpy.zeros((3, 3), int)
            numpy.add.at(expected, ([label for _, label in files], theirs), 1)
            numpy.testing.assert_array_equal(counts, expected)
            self.assertEqual(re.findall(r"top-1 [\d.]+ % \((\d+)/(\d+)\)", result.output), [(str(top1), "100")])


if __name__ == "__main__":
    kit.main()
