"""Wrong input ends the job with its documented exit code and one clear message, with one rank or several."""

import os
import struct

import h5py
import numpy

import kit


class Errors(kit.TestCase):
    def refused(self, code, *texts, config=None, arguments=(), ranks=(0, 2)):
        """Alone and under mpirun: that exit code, and one error line with all the texts."""
        options = ["--config", config] if config else []
        for count in ranks:
            with self.subTest(texts=texts, ranks=count):
                self.assert_one_error(self.run_job(count, *arguments, *options, timeout=60), code, *texts)
                self.assertEqual(kit.checkpoints(self.path("run")), [])

    def test_configurations_that_make_no_sense(self):
        self.records(10)
        good = kit.toml(kit.SMALL)
        for name, text, told in (
                ("unknown", good.replace("steps = 20", "stepps = 20"), ("unknown.toml:", "stepps", "train.steps")),
                ("type", good.replace("steps = 20", 'steps = "many"'), ("type.toml:", "steps", "integer")),
                ("duplicate", good.replace("steps = 20", "steps = 20\nsteps = 21"), ("duplicate.toml:", "steps")),
        ):
            self.refused(kit.CONFIG, *told, config=kit.write(self.path(name + ".toml"), text))
        self.refused(kit.CONFIG, "nowhere.toml", config="nowhere.toml")

    def test_models_that_do_not_fit_their_settings(self):
        large = {"train.steps": 1}
        self.refused(kit.CONFIG, "model.image_size = 74", "75",
                     config=self.config({**large, "model.image_size": 74}, kit.LARGE))
        self.refused(kit.CONFIG, "model.aux_weight", "299",
                     config=self.config({**large, "model.aux_weight": 0.4}, kit.LARGE))
        self.refused(kit.CONFIG, "one value", "train.batch_size",
                     config=self.config({**large, "train.batch_size": 1}, kit.LARGE))

    def test_global_batches_that_do_not_divide(self):
        self.records(10)
        config = self.config({"train.batch_size": None, "train.global_batch": 25})
        self.refused(kit.CONFIG, "train.global_batch = 25", "24 and 26", config=config, ranks=(2,))

    def test_command_lines_that_are_not_understood(self):
        self.records(10)
        config = self.config()
        self.refused(kit.CONFIG, "evalute", "evaluate", arguments=["evalute"], config=config)
        self.refused(kit.CONFIG, "--trian.steps", "--train.steps", arguments=["--trian.steps", "3"], config=config)
        self.refused(kit.CONFIG, "--train.steps", "twice", arguments=["--train.steps", "3", "--train.steps", "4"],
                     config=config)
        self.refused(kit.CONFIG, "no configuration")

    def test_data_that_are_missing_or_empty(self):
        kit.write(self.path("empty.tfrecord"), b"")
        os.makedirs(self.path("folder/class"))
        for name, changes in (("missing.tfrecord", {}), ("empty.tfrecord", {}), ("folder", {"data.format": "folder"})):
            self.refused(kit.DATA, name, config=self.config({"data.train": name, **changes}))

    def test_records_that_are_damaged_or_mislabelled(self):
        good = kit.images(20)
        body = len(kit.tfrecord(good[:7]))  # record 7 starts here
        records = kit.tfrecord(good)
        flipped = bytearray(records)
        flipped[body + 40] ^= 1
        broken_header = records[:body] + struct.pack("<Q", 1 << 40) + records[body + 8:]
        for name, data, told in (
                ("truncated", records[:-5], ("record 19",)),
                ("checksum", bytes(flipped), ("record 7", "checksum")),
                ("header", broken_header, ("record 7",)),
                ("label", kit.tfrecord([*good[:7], (good[7][0], 10), *good[8:]]), ("record 7", "label 10", "0..9")),
                ("image", kit.tfrecord([*good[:7], (good[7][0][:60], 7), *good[8:]]), ("record 7",)),
                ("text", kit.tfrecord([*good[:7], (b"not an image", 7), *good[8:]]), ("record 7",)),
        ):
            kit.write(self.path(name + ".tfrecord"), data)
            self.refused(kit.DATA, name + ".tfrecord", *told, config=self.config({"data.train": name + ".tfrecord"}))

    def test_hdf5_files_that_hold_something_else(self):
        with h5py.File(self.path("flat.h5"), "w") as file:
            file["images"] = numpy.zeros((4, 48), numpy.uint8)
            file["labels"] = numpy.zeros(4, numpy.int64)
        self.refused(kit.DATA, "flat.h5", "[N,C,H,W]",
                     config=self.config({"data.format": "hdf5", "data.train": "flat.h5"}))

    # Only one of two ranks reads the bad record (there are as many records as samples in a step). The job must not
    # wait for the other.
    def test_a_data_error_on_one_rank_ends_all_of_them(self):
        good = kit.images(24)
        kit.write(self.path("train.tfrecord"), kit.tfrecord([*good[:20], (good[20][0][:60], 0), *good[21:]]))
        result = self.train(2, self.config({"data.shuffle": False, "watchdog.abort_seconds": 40}), code=kit.DATA)
        self.assert_one_error(result, kit.DATA, "rank 1@", "train.tfrecord record 20")
        self.assertLess(result.seconds, 20)

    def test_checkpoints_of_another_model(self):
        self.records(10)
        self.train(1, self.config({"train.steps": 1}))
        config = self.config({"model.classes": 12})
        for ranks in (0, 2):
            self.assert_one_error(self.run_job(ranks, "--config", config), kit.CONFIG, "fc5.weight", "[10,192]",
                                  "[12,192]")


class Numerics(kit.TestCase):
    def test_a_rate_that_is_far_too_high_stops_all_ranks_and_publishes_nothing_that_is_not_finite(self):
        self.records(30)
        config = self.config({"optimizer.lr": 1e20, "checkpoint.every_steps": 1, "checkpoint.keep": 100})
        for ranks in (1, 2, 3):
            folder = f"run{ranks}"
            result = self.train(ranks, config, {"checkpoint.directory": folder}, code=kit.NUMERICS)
            self.assertEqual(len(result.errors()), 1, str(result))
            self.assertRegex(result.errors()[0], r"step \d+")
            for name in kit.checkpoints(self.path(folder)):
                for key, values in kit.datasets(self.path(folder, name)).items():
                    self.assertTrue(numpy.isfinite(values).all(), f"{name}: {key}")


if __name__ == "__main__":
    kit.main()
