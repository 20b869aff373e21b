"""Data as they come: bad records that are skipped, parts held out, file systems that list in another order."""

import os
import re
import subprocess
import sys

import h5py
import numpy

import kit

SCRIPT = os.path.join(os.path.dirname(__file__), "../../scripts/make_a8a.py")


class Data(kit.TestCase):
    def test_bad_records_are_skipped_counted_and_named_on_any_number_of_ranks(self):
        samples = kit.images(40)
        bad = {3: b"", 9: samples[9][0][:30], 17: samples[17][0][:-20], 23: b"GIF89a....", 31: b"<html></html>"}
        for index, encoded in bad.items():
            samples[index] = (encoded, samples[index][1])
        kit.write(self.path("train.tfrecord"), kit.tfrecord(samples))
        weights = []
        for ranks, batch in ((1, 12), (2, 6), (3, 4)):
            directory = f"run{ranks}"
            config = self.config({"data.bad_records": "skip", "train.batch_size": batch, "train.steps": 10,
                                  "checkpoint.directory": directory})
            self.train(ranks, config, flags=["--oversubscribe"])
            self.assertEqual(sorted(kit.per_step(self.path(directory), "loss")), list(range(1, 11)))
            listed = [row for row in kit.metrics(self.path(directory), "event") if row["event"] == "bad_records"][-1]
            self.assertEqual({record["index"] for record in listed["records"]}, set(bad))
            for record in listed["records"]:
                self.assertIn(f"train.tfrecord record {record['index']} ", record["message"])
            weights.append(kit.datasets(self.path(directory, "latest"))["model/fc5.weight"])
        for other in weights[1:]:
            numpy.testing.assert_allclose(other, weights[0], rtol=1e-3, atol=1e-5)

    def test_a_share_of_the_data_is_held_out_for_evaluation(self):
        self.records(200)
        config = self.config({"data.validation_fraction": 0.25, "train.steps": 4})
        result = self.train(2, config)
        examples = kit.metrics(self.path("run"), "eval")[-1]["examples"]
        self.assertGreater(examples, 25)
        self.assertLess(examples, 75)
        self.assertIn(f"of which {examples} are for validation", result.output)
        self.assertIn(f"of which {200 - examples} are for training", result.output)
        both = self.config({"data.validation_fraction": 0.25, "data.validation": "train.tfrecord"})
        self.assert_one_error(self.train(1, both, code=kit.CONFIG), kit.CONFIG, "data.validation_fraction")

    def test_the_order_in_which_a_file_system_lists_changes_nothing(self):
        reverse_readdir = os.environ["LOCKSTEP_REVERSE_READDIR"]
        if not reverse_readdir:
            self.skipTest("built with sanitizers, which want to be loaded before anything else")
        subprocess.run([os.environ["LOCKSTEP_IMAGE_FOLDER"], self.path("images"), "30"], check=True)
        script = kit.write(self.path("wrapper.sh"), f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != "$REVERSED" ] || export LD_PRELOAD="{reverse_readdir}"
exec "$@"
""")
        os.chmod(script, 0o755)
        found = []
        for reversed_rank in ("none", "0", "1"):
            config = self.config({"data.format": "folder", "data.train": "images", "model.classes": 3, "train.steps": 6,
                                  "checkpoint.directory": f"run-{reversed_rank}"})
            self.train(2, config, wrapper=[script], env={"REVERSED": reversed_rank})
            found.append(kit.datasets(self.path(f"run-{reversed_rank}", "latest"))["model/fc5.weight"])
        for other in found[1:]:
            numpy.testing.assert_array_equal(other, found[0])

    def test_labels_that_begin_at_1_want_their_offset_and_without_it_are_told(self):
        samples = [(encoded, label % 3) for encoded, label in kit.images(36)]
        for name, first in (("zero", 0), ("one", 1)):
            kit.write(self.path(name), kit.tfrecord([(encoded, label + first) for encoded, label in samples]))

        def run(data, classes, offset, code=kit.OK):
            config = self.config({"data.train": data, "data.validation": data, "data.label_offset": offset,
                                  "model.classes": classes, "train.steps": 40, "optimizer.lr": 0.05,
                                  "optimizer.momentum": 0.9, "checkpoint.directory": f"{data}{classes}{offset}"})
            return self.train(2, config, code=code)

        self.assert_one_error(run("one", 3, 0, kit.DATA), kit.DATA, "one record", "label 3", "0..2", "data.label_offset")
        self.assert_one_error(run("zero", 3, -1, kit.DATA), kit.DATA, "zero record", "data.label_offset")
        for data, classes, offset in (("one", 3, -1), ("zero", 3, 0), ("one", 4, 0)):
            run(data, classes, offset)
        # The same numbers of classes and samples: an offset renames classes and changes nothing else.
        self.assertEqual(kit.per_step(self.path("one3-1"), "loss"), kit.per_step(self.path("zero30"), "loss"))

    def test_data_with_one_label_and_data_that_are_evaluated_too_are_warned_of(self):
        kit.write(self.path("train.tfrecord"), kit.tfrecord([(encoded, 3) for encoded, _ in kit.images(24)]))
        os.symlink("train.tfrecord", self.path("validation.tfrecord"))
        result = self.train(2, self.config({"data.validation": "validation.tfrecord", "train.steps": 2}))
        self.assert_once(result, "all of the 24 records looked at have the label 3")
        self.assert_once(result, "data.train and data.validation read the same data (")
        self.records(24)
        self.records(24, "other.tfrecord", seed=1)
        result = self.train(1, self.config({"data.validation": "other.tfrecord", "train.steps": 2,
                                            "checkpoint.directory": "other"}))
        self.assertNotIn("the same data", result.output)
        self.assertNotIn("records looked at", result.output)

    def test_floating_point_images_outside_0_to_1_are_warned_of_and_those_that_are_not_finite_refused(self):
        images = numpy.random.default_rng(1).random((24, 3, 16, 16), dtype=numpy.float32)

        def write(name, pixels):
            with h5py.File(self.path(name), "w") as file:
                file["images"] = pixels
                file["labels"] = numpy.arange(24) % 10

        write("unit.h5", images)
        write("bytes.h5", images * 255)
        broken = images.copy()
        broken[7, 1, 2, 3] = numpy.nan
        write("broken.h5", broken)
        config = {"data.format": "hdf5", "train.steps": 2}
        for name, warnings in (("unit.h5", 0), ("bytes.h5", 1)):
            result = self.train(2, self.config({**config, "data.train": name, "checkpoint.directory": name + "-run"}))
            self.assertEqual(result.count("takes 0 to 1 for the full range"), warnings, str(result))
        config = {**config, "data.train": "broken.h5"}
        place = f"broken.h5 image 7: pixel value {16 * 16 + 2 * 16 + 3} is nan"
        self.assert_one_error(self.train(2, self.config(config), code=kit.DATA), kit.DATA, place)
        self.train(2, self.config({**config, "data.bad_records": "skip"}))
        listed = [row for row in kit.metrics(self.path("run"), "event") if row["event"] == "bad_records"][-1]
        self.assertEqual([record["message"] for record in listed["records"]], [place])

    def test_what_a_cut_off_file_lost_is_in_the_report(self):
        whole = kit.tfrecord(kit.images(40))
        kit.write(self.path("train.tfrecord"), whole[:-30])
        self.assert_one_error(self.train(2, self.config({"train.steps": 2}), code=kit.DATA), kit.DATA, "train.tfrecord",
                              "record 39", "cut off")
        self.train(2, self.config({"data.bad_records": "skip", "train.steps": 2}))
        listed = [row for row in kit.metrics(self.path("run"), "event") if row["event"] == "bad_records"][-1]
        self.assertRegex(listed["text"],
                         r"skipped: 0, .*besides, 1 file could not be read to the end: \d+ bytes of records")

    def test_a_picture_above_the_limit_of_pixels_is_refused_with_the_key(self):
        self.records(24)
        config = self.config({"data.max_pixels": 200, "train.steps": 2})
        self.assert_one_error(self.train(2, config, code=kit.DATA), kit.DATA, "train.tfrecord record ",
                              "16 x 16 pixels, but data.max_pixels allows 200")

    def test_validation_with_fewer_classes_takes_the_labels_of_training(self):
        encoded = [image for image, _ in kit.images(12)]
        for number, image in enumerate(encoded):
            for data, classes in (("train", "abc"), ("part", "c"), ("other", "bd")):
                kit.write(self.path(data, classes[number % len(classes)], f"{number}.png"), image)
        config = {"data.format": "folder", "data.train": "train", "model.classes": 3, "train.steps": 2}
        result = self.train(2, self.config({**config, "data.validation": "part"}))
        self.assert_once(result, "images of 1 of the 3 classes only")
        evaluated = self.run_job(1, "evaluate", "--config", self.config({**config, "data.validation": "part"}),
                                 "--checkpoint", "latest")
        self.assertEqual(evaluated.code, kit.OK, str(evaluated))
        self.assert_once(evaluated, "images of 1 of the 3 classes only")
        found = [re.findall(r"evaluation at step 2 .*?(top-1 [^,]+), ", output)[-1] for output in
                 (result.output, evaluated.output)]
        self.assertEqual(found[0], found[1])
        refused = self.train(2, self.config({**config, "data.validation": "other", "checkpoint.directory": "second"}),
                             code=kit.DATA)
        self.assert_one_error(refused, kit.DATA, "class 0 is 'a' in data.train and 'b' in data.validation")

    def test_a_read_that_does_not_end_is_named_with_its_record(self):
        self.records(60)
        config = self.config({"train.steps": 1_000_000, "watchdog.warn_seconds": 1, "watchdog.abort_seconds": 3})
        result = self.run_job(1, "--config", config, env=self.faulty(0, "read:train.tfrecord", "hold"))
        self.assert_one_error(result, kit.STALLED, "loader thread: train.tfrecord record ")
        with open(self.path("run", "stall-report.rank0.txt"), encoding="utf-8") as report:
            self.assertRegex(report.read(),
                             r"busy with:\n  loader thread: train.tfrecord record \d+ \(offset \d+\), for ")

    def test_images_that_cannot_be_opened_are_skipped(self):
        for number, (image, label) in enumerate(kit.images(24)):
            kit.write(self.path("train", f"class{label}", f"{number}.png"), image)
        os.symlink("absent", self.path("train", "class1", "dangling.png"))
        os.mkfifo(self.path("train", "class1", "pipe.png"))
        config = {"data.format": "folder", "data.train": "train", "train.steps": 6}
        refused = self.train(2, self.config(config), code=kit.DATA)
        self.assert_one_error(refused, kit.DATA, "class1/", ".png")
        self.train(2, self.config({**config, "data.bad_records": "skip"}))
        listed = [row for row in kit.metrics(self.path("run"), "event") if row["event"] == "bad_records"][-1]
        self.assertEqual(sorted(record["message"].split("class1/")[1].split(":")[0] for record in listed["records"]),
                         ["dangling.png", "pipe.png"])


class LibsvmText(kit.TestCase):
    """scripts/make_a8a.py."""

    def convert(self, text, code=0):
        kit.write(self.path("in.svm"), text.encode())
        result = subprocess.run([sys.executable, SCRIPT, self.path("in.svm"), self.path("out.tfrecords")],
                                capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        return result.stderr

    def test_comments_and_query_ids_are_left_out(self):
        self.convert("# a comment\n+1 qid:3 1:0.5 7:2 # the rest\n\n-1 2:1e1\n1.0 5:1\n")
        with open(self.path("out.tfrecords"), "rb") as made:
            self.assertEqual(made.read(), kit.frame([kit.sparse_example(1, [1, 7], [0.5, 2.0]),
                                                     kit.sparse_example(0, [2], [10.0]),
                                                     kit.sparse_example(1, [5], [1.0])]))

    def test_what_is_no_sample_ends_with_file_and_line_and_without_an_output(self):
        for text, reason in (("1 1:1\n2.7 1:1\n", "in.svm:2: the label 2.7 is no whole number"),
                             ("1 1:nan\n", "in.svm:1: the value nan is not finite"),
                             ("1 x:1\n", "in.svm:1: the id 'x' is no number"),
                             ("1 word\n", "in.svm:1: 'word' is no id:value"), ("-3 1:1\n", "the label -3 is negative")):
            self.assertIn(reason, self.convert(text, code=1))
            self.assertEqual([name for name in os.listdir(self.path()) if name.startswith("out")], [])


if __name__ == "__main__":
    kit.main()
