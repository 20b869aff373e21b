"""Data as they come: bad records that are skipped, parts held out, file systems that list in another order."""

import os
import subprocess

import numpy

import kit


class Data(kit.TestCase):
    def test_bad_records_are_skipped_counted_and_named_on_any_number_of_ranks(self):
        samples = kit.images(40)
        bad = {3: b"", 9: samples[9][0][:30], 17: samples[17][0][:-20], 23: b"GIF89a....", 31: b"<html></html>"}
        for index, encoded in bad.items():
            samples[index] = (encoded, samples[index][1])
        kit.write(self.path("train.tfrecord"), kit.tfrecord(samples))
        weights = []
        for ranks, batch in ((1, 12), (2, 6), (3, 4)):
            folder = f"run{ranks}"
            config = self.config({"data.bad_records": "skip", "train.batch_size": batch, "train.steps": 10,
                                  "checkpoint.directory": folder})
            self.train(ranks, config, flags=["--oversubscribe"])
            self.assertEqual(sorted(kit.per_step(self.path(folder), "loss")), list(range(1, 11)))
            listed = [row for row in kit.metrics(self.path(folder), "event") if row["event"] == "bad_records"][-1]
            self.assertEqual({record["index"] for record in listed["records"]}, set(bad))
            for record in listed["records"]:
                self.assertIn(f"train.tfrecord record {record['index']} ", record["message"])
            weights.append(kit.datasets(self.path(folder, "latest"))["model/fc5.weight"])
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


if __name__ == "__main__":
    kit.main()
