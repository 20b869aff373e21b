"""How a run starts: what refuses it, and that `trainer check` refuses the same with the same words and code."""

import h5py

import kit

JPEG_HEAD = b"\xff\xd8\xff\xe0 no picture follows"


def reason(line):
    """The text of an error line without rank and host of who printed it."""
    return line.split("error: ", 1)[1]


class Refusals(kit.TestCase):
    """Each case is one bad job, started twice: under `trainer check` and for training."""

    def setUp(self):
        super().setUp()
        self.records(30)

    def assert_both_refuse(self, ranks, code, *texts, changes=None, arguments=(), **more):
        config = self.config(changes)
        checked = self.run_job(ranks, "check", "--config", config, *arguments, **more)
        self.assertEqual(checked.code, code, str(checked))
        trained = self.run_job(ranks, "--config", config, *arguments, **more)
        self.assert_one_error(trained, code, *texts)
        self.assertIn(reason(trained.errors()[0]), [reason(line) for line in checked.errors()],
                      f"{checked}\nand trained:\n{trained}")
        self.assertEqual(reason(checked.errors()[0]), reason(trained.errors()[0]), "check names it first, too")
        return checked, trained

    def trained(self, changes=None, name="first.toml"):
        self.train(0, self.config({"train.steps": 2, **(changes or {})}, name=name))

    def test_configurations_that_are_refused_before_anything_is_read(self):
        for changes, text in (
                ({"data.trian": "x"}, "trian"),
                ({"train.steps": 0, "train.epochs": 0.0}, "train.epochs and train.steps are both 0"),
                ({"data.train": []}, "data.train is empty"),
                ({"checkpoint.keep_best": True}, "checkpoint.keep_best"),
        ):
            with self.subTest(text):
                self.assert_both_refuse(0, kit.CONFIG, text, changes=changes)

    def test_data_that_are_refused(self):
        good = kit.images(30)
        kit.write(self.path("nokey.tfrecord"), kit.frame([kit.sparse_example(1, [1], [1.0])] * 30))
        kit.write(self.path("nopicture.tfrecord"), kit.tfrecord([(JPEG_HEAD, label) for _, label in good]))
        kit.write(self.path("text.tfrecord"), b"not a record file, but long enough for a header")
        for changes, text in (
                ({"data.train": "nowhere.tfrecord"}, "nowhere.tfrecord"),
                ({"data.validation": "nowhere.tfrecord"}, "nowhere.tfrecord"),
                ({"data.train": "text.tfrecord"}, "text.tfrecord"),
                ({"data.train": "nokey.tfrecord"}, "nokey.tfrecord"),
                ({"data.train": "nokey.tfrecord", "data.bad_records": "skip"}, "gives up here"),
                ({"data.train": "nopicture.tfrecord"}, "nopicture.tfrecord"),
                ({"data.validation": "nopicture.tfrecord"}, "nopicture.tfrecord"),
                ({"model.classes": 5}, "outside the allowed range 0..4"),
                ({"data.label_offset": -1}, "outside the allowed range 0..9"),
        ):
            with self.subTest(str(changes)):
                self.assert_both_refuse(0, kit.DATA, text, changes=changes)

    def test_one_bad_record_among_good_ones_is_left_to_bad_records(self):
        samples = kit.images(30)
        samples[17] = (JPEG_HEAD, 0)
        kit.write(self.path("one.tfrecord"), kit.tfrecord(samples))
        for command in ((), ("check",)):
            result = self.run_job(2, *command, "--config",
                                  self.config({"data.train": "one.tfrecord", "data.bad_records": "skip"}))
            self.assertEqual(result.code, kit.OK, str(result))

    def photos(self, name, classes):
        for number, klass in enumerate(classes):
            for i, (encoded, _) in enumerate(kit.images(4, seed=number)):
                kit.write(self.path(name, klass, f"{i}.png"), encoded)
        return name

    def test_class_directories_of_validation_that_differ(self):
        self.photos("photos", ["ant", "bee", "cat"])
        self.photos("others", ["ant", "cow", "cat"])
        for ranks in (0, 2):
            self.assert_both_refuse(ranks, kit.DATA, "'bee' in data.train and 'cat' in data.validation",
                                    changes={"data.format": "folder", "data.train": "photos", "data.validation": "others",
                                             "model.classes": 3})

    def test_batches_that_do_not_divide(self):
        self.assert_both_refuse(2, kit.CONFIG, "train.global_batch = 13 does not divide",
                                changes={"train.global_batch": 13, "train.batch_size": None})

    def test_checkpoints_that_do_not_fit(self):
        self.trained()
        for changes, text in (
                ({"model.classes": 12}, "fc5"),
                ({"model.image_size": 32}, "step-00000002.h5"),
                ({"optimizer.momentum": 0.5, "optimizer.name": "adamw"}, "/optimizer/exp_avg"),
                ({"ema.decay": 0.9}, "/ema"),
        ):
            with self.subTest(text):
                self.assert_both_refuse(0, kit.CONFIG, text, changes=changes)

    def test_the_rules_of_resuming(self):
        self.assert_both_refuse(0, kit.CHECKPOINT, '"must"', changes={"checkpoint.resume": "must"})
        self.assert_both_refuse(2, kit.CHECKPOINT, "gone.h5", changes={"checkpoint.resume": "gone.h5"})
        self.trained({"checkpoint.every_steps": 1})
        self.assert_both_refuse(2, kit.CONFIG, '"never"', "delete 2 checkpoints (up to step 2)",
                                changes={"checkpoint.resume": "never"})
        self.assert_both_refuse(0, kit.CONFIG, "names step 1", "delete 1 checkpoint (up to step 2)",
                                changes={"checkpoint.resume": "run/step-00000001.h5"})

    def test_check_deletes_no_checkpoint_that_training_would(self):
        self.trained({"checkpoint.every_steps": 1})
        before = kit.checkpoints(self.path("run"))
        for changes in ({"checkpoint.resume": "never", "checkpoint.overwrite": True},
                        {"checkpoint.resume": "run/step-00000001.h5", "checkpoint.overwrite": True}):
            result = self.run_job(0, "check", "--config", self.config(changes))
            self.assertEqual(result.code, kit.OK, str(result))
            self.assertEqual(kit.checkpoints(self.path("run")), before)

    # What would be given up is so only when nothing else refuses.
    def test_a_start_that_is_refused_deletes_nothing(self):
        self.trained()
        kit.write(self.path("nopicture.tfrecord"), kit.tfrecord([(JPEG_HEAD, 0)] * 30))
        before = kit.checkpoints(self.path("run"))
        for changes in ({"checkpoint.init_from": "gone.h5"}, {"data.train": "nopicture.tfrecord"}):
            result = self.run_job(0, "--config", self.config(
                {"checkpoint.resume": "never", "checkpoint.overwrite": True, **changes}))
            self.assertNotEqual(result.code, kit.OK, str(result))
            self.assertEqual(kit.checkpoints(self.path("run")), before)

    def test_weights_to_start_from_that_are_not_there_or_do_not_fit(self):
        self.assert_both_refuse(0, kit.CHECKPOINT, "gone.h5", changes={"checkpoint.init_from": "gone.h5"})
        with h5py.File(self.path("bare.h5"), "w") as file:
            file["conv1.weight"] = [1.0, 2.0]
        self.assert_both_refuse(0, kit.CONFIG, "bare.h5", changes={"checkpoint.init_from": "bare.h5"})

    def test_the_end_of_the_job_that_is_no_time(self):
        self.assert_both_refuse(2, kit.CONFIG, "LOCKSTEP_JOB_END", env={"LOCKSTEP_JOB_END": "tomorrow"})

    def test_a_checkpoint_directory_that_cannot_be_made(self):
        kit.write(self.path("file"), b"")
        self.assert_both_refuse(0, kit.CHECKPOINT, "file/run", changes={"checkpoint.directory": "file/run"})

    def test_a_directory_of_a_running_job(self):
        job = self.start(0, "--config", self.config({"train.steps": 1000000}, name="running.toml"))
        job.wait_for_output("step 1,")
        self.assert_both_refuse(2, kit.CONFIG, "belongs to a running job")
        self.assertIsNone(job.process.poll(), "the running job goes on")


if __name__ == "__main__":
    kit.main()
