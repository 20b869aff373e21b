"""How a run starts: what refuses it, and that `trainer check` refuses the same with the same words and code."""

import os
import shutil
import subprocess

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

    def test_ranks_that_were_given_other_arguments(self):
        for given, texts in (("--config other.toml", ("'--config other.toml'", "'--config ")),
                             ("--train.batch_size 8", ("--train.batch_size 8'", "'--config "))):
            wrapper = self.of_rank_1(f'program="$1"; shift; [ "$1" = check ] && command=check && shift; '
                                     f'shift 2; exec "$program" $command --config {"run.toml" if "batch" in given else ""} '
                                     f'{given.replace("--config ", "")} "$@"')
            self.config({"train.batch_size": 6}, name="other.toml")
            self.assert_both_refuse(2, kit.CONFIG, "rank 1@", "rank 0@", *texts, arguments=("--train.steps", "3"),
                                    wrapper=wrapper)

    def test_ranks_of_a_benchmark_that_were_given_other_flags(self):
        wrapper = self.of_rank_1('exec "$@" --forward_only')
        result = self.run_job(2, "--model", "cifar10_cnn", "--num_batches", "2", wrapper=wrapper)
        self.assert_one_error(result, kit.CONFIG, "rank 1@", "'--forward_only true'", "'--forward_only false'")

    def test_ranks_whose_environments_set_other_values(self):
        wrapper = self.of_rank_1('LOCKSTEP_TRAIN_SEED=8 exec "$@"')
        self.assert_both_refuse(2, kit.CONFIG, "rank 1@", "LOCKSTEP_TRAIN_SEED=8", "no such variable", wrapper=wrapper)
        self.assert_both_refuse(2, kit.CONFIG, "LOCKSTEP_TRAIN_SEED=8", "LOCKSTEP_TRAIN_SEED=7", wrapper=wrapper,
                                env={"LOCKSTEP_TRAIN_SEED": "7"})
        # Rank 0's environment counts, and other hosts may not have it.
        wrapper = self.of_rank_1('unset LOCKSTEP_TRAIN_STEPS; exec "$@"')
        result = self.run_job(2, "--config", self.config(), wrapper=wrapper, env={"LOCKSTEP_TRAIN_STEPS": "2"})
        self.assertEqual(result.code, kit.OK, str(result))

    def test_other_data_of_the_same_size_on_one_rank(self):
        other = self.records(30, "other.tfrecord", seed=5)
        mount = f'mount --bind "{other}" "{self.path("train.tfrecord")}"'
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no private mounts here")
        wrapper = self.of_rank_1(f"exec unshare -m sh -c '{mount} && exec \"$@\"' sh \"$@\"")
        self.assert_both_refuse(2, kit.DATA, "training data differs between ranks", "rank 1@", wrapper=wrapper)


class Changes(kit.TestCase):
    """A run goes on with another configuration than its checkpoint was trained with."""

    def setUp(self):
        super().setUp()
        self.records(30)
        self.train(0, self.config({"train.steps": 2}))

    def continued(self, changes, code=kit.OK, command=(), ranks=0):
        result = self.run_job(ranks, *command, "--config", self.config({"train.steps": 4, **changes}))
        self.assertEqual(result.code, code, str(result))
        return result

    def lines(self, result):
        return [line.split("warning: ", 1)[1] for line in result.warnings() if " was trained " in line]

    def test_the_same_configuration_says_nothing(self):
        result = self.run_job(0, "--config", self.config({"train.steps": 2}))
        self.assertEqual((result.code, result.warnings()), (kit.OK, []), str(result))
        self.assert_once(result, "nothing will be trained")

    def test_what_is_trained_otherwise_is_one_line_each_with_both_values(self):
        changes = {"optimizer.lr": 0.02, "train.seed": 5, "train.label_smoothing": 0.0, "data.shuffle": False,
                   "train.batch_size": 6, "checkpoint.keep": 3, "log.every_steps": 2}
        for command in (("check",), ()):
            lines = self.lines(self.continued(changes, command=command))
            for text in ("data.shuffle = true, this run has false", "train.steps = 2, this run has 4",
                         "train.label_smoothing = 0.1, this run has 0", "train.seed = 1, this run has 5",
                         "optimizer.lr = 0.01, this run has 0.02", "a global batch of 12, this run has 6"):
                self.assertEqual(sum(text in line for line in lines), 1, f"{text}: {lines}")
            self.assertEqual(len(lines), 6, lines)

    def test_another_number_of_ranks_with_the_same_global_batch_says_only_that_it_goes_further(self):
        lines = self.lines(self.continued({"train.global_batch": 12, "train.batch_size": None}, ranks=2))
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("train.steps = 2, this run has 4", lines[0])

    def test_what_the_network_computes_or_sees_is_refused_unless_it_is_allowed(self):
        for key, now in (("data.normalize", "torchvision"), ("data.augment", "crop_flip"), ("model.bn_epsilon", 1e-5)):
            for command in (("check",), ()):
                refused = self.continued({key: now}, kit.CONFIG, command)
                self.assert_one_error(refused, kit.CONFIG, key, str(now), "step-00000002.h5",
                                      "checkpoint.allow_changes = true")
        self.assertEqual(kit.checkpoints(self.path("run")), ["step-00000002.h5"])
        allowed = self.continued({"data.normalize": "torchvision", "checkpoint.allow_changes": True})
        self.assertTrue(any('data.normalize = "inception", this run has "torchvision"' in line
                            for line in self.lines(allowed)), str(allowed))

    def test_evaluation_refuses_what_the_weights_were_not_trained_for(self):
        validation = {"data.validation": "train.tfrecord"}
        self.continued({**validation, "optimizer.lr": 0.5}, command=("evaluate",))
        refused = self.continued({**validation, "data.normalize": "torchvision"}, kit.CONFIG, ("evaluate",))
        self.assert_one_error(refused, kit.CONFIG, 'data.normalize = "inception"', '"torchvision"')
        self.continued({**validation, "data.normalize": "torchvision", "checkpoint.allow_changes": True},
                       command=("evaluate",))
        other_crop = self.continued({**validation, "data.augment": "inception"}, command=("evaluate",))
        self.assertTrue(any("data.augment" in line for line in self.lines(other_crop)), str(other_crop))

    def test_fine_tuning_warns_of_it(self):
        result = self.continued({"checkpoint.init_from": "run/step-00000002.h5", "checkpoint.directory": "tuned",
                                 "data.normalize": "torchvision", "optimizer.lr": 0.5})
        lines = self.lines(result)
        self.assertEqual(len(lines), 1, str(result))
        self.assertIn("data.normalize", lines[0])

    def test_data_that_grew_or_were_exchanged(self):
        self.records(42)
        self.assertTrue(any("on 30 samples, data.train has 42 now" in line for line in self.lines(self.continued({}))))
        self.records(42, seed=9)
        lines = self.lines(self.continued({"train.steps": 6}))
        self.assertTrue(any("other contents of data.train" in line for line in lines), lines)
        shutil.copy(self.path("train.tfrecord"), self.path("moved.tfrecord"))
        lines = self.lines(self.continued({"train.steps": 6, "data.train": "moved.tfrecord"}))
        self.assertEqual(lines, [], "the same records under another name")

    # A sweep of rates in one directory would report one result for all of them.
    def test_a_finished_run_with_another_rate_warns_that_nothing_is_trained(self):
        for ranks in (0, 2):
            result = self.run_job(ranks, "--config", self.config({"train.steps": 2, "optimizer.lr": 0.5}))
            self.assertEqual(result.code, kit.OK, str(result))
            self.assertEqual(sum("nothing will be trained" in line for line in result.warnings()), 1, str(result))


class Leads(kit.TestCase):
    """What is nearly right is taken, and what is not says where to go."""

    def setUp(self):
        super().setUp()
        self.records(30)
        self.records(12, "validation.tfrecord", seed=1)
        self.train(0, self.config({"train.steps": 2, "data.validation": "validation.tfrecord"}))

    def test_a_directory_stands_for_its_newest_checkpoint(self):
        for arguments in (("inspect", "run"), ("export", "run", "--to", "out.safetensors"),
                          ("evaluate", "--checkpoint", "run"),
                          ("--config", self.config({"checkpoint.directory": "tuned"}), "--checkpoint.init_from", "run"),
                          ("--config", self.config({"checkpoint.directory": "more"}), "--checkpoint.resume", "run")):
            result = self.run_job(0, *arguments)
            self.assertEqual(result.code, kit.OK, str(result))
        os.mkdir(self.path("empty"))
        self.assert_one_error(self.run_job(0, "export", "empty", "--to", "out.h5"), kit.CHECKPOINT,
                              "empty: a directory without a whole checkpoint")

    def test_evaluation_takes_the_configuration_of_the_checkpoint(self):
        with_config = self.run_job(2, "evaluate", "--config",
                                   self.config({"data.validation": "validation.tfrecord"}), "--checkpoint", "latest")
        line = [text for text in with_config.output.splitlines() if text.startswith("evaluation at step 2")]
        self.assertEqual(len(line), 1, str(with_config))
        for arguments in (("--checkpoint", "run/step-00000002.h5"), ("--checkpoint.directory", "run")):
            result = self.run_job(2, "evaluate", *arguments)
            self.assertEqual(result.code, kit.OK, str(result))
            self.assertIn(line[0], result.output)
        other = self.run_job(0, "evaluate", "--checkpoint", "run", "--data.validation", "train.tfrecord")
        self.assertIn("/30)", other.output, "the command line counts above it")
        self.assert_one_error(self.run_job(0, "evaluate"), kit.CONFIG, "--checkpoint PATH", "--config FILE")

    def test_evaluation_of_a_run_with_a_global_batch_needs_no_configuration(self):
        self.train(2, self.config({"train.steps": 2, "train.batch_size": None, "train.global_batch": 12,
                                   "data.validation": "validation.tfrecord", "checkpoint.directory": "global"}))
        result = self.run_job(0, "evaluate", "--checkpoint", "global")
        self.assertEqual(result.code, kit.OK, str(result))

    def test_evaluation_needs_no_training_data(self):
        config = self.config({"data.train": None, "data.validation": "validation.tfrecord"})
        result = self.run_job(0, "evaluate", "--config", config)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assert_one_error(self.run_job(0, "--config", config), kit.CONFIG, "data.train is empty")

    def test_fine_tuning_errors_say_what_helps(self):
        fresh = {"checkpoint.directory": "tuned"}
        result = self.run_job(0, "--config", self.config({**fresh, "checkpoint.init_from": "weights.pth"}))
        self.assert_one_error(result, kit.CONFIG, "save its weights as safetensors")
        result = self.run_job(0, "--config", self.config({**fresh, "model.image_size": 32, "checkpoint.init_from": "run"}))
        self.assert_one_error(result, kit.CONFIG, "checkpoint.init_exclude")

    def test_class_names_survive_packing(self):
        for number, klass in enumerate(("ant", "bee", "cat")):
            for i, (encoded, _) in enumerate(kit.images(4, seed=number)):
                kit.write(self.path("photos", klass, f"{i}.png"), encoded)
        changes = {"model.classes": 3, "data.format": "folder", "data.train": "photos", "checkpoint.directory": "animals",
                   "train.steps": 2}
        result = self.run_job(0, "pack", "--config", self.config(changes), "--to", self.path("packed"))
        self.assertEqual(result.code, kit.OK, str(result))
        self.train(0, self.config({**changes, "data.format": "tfrecord", "data.train": "packed/train-*"}))
        self.assertEqual([name.decode() for name in kit.datasets(self.path("animals/step-00000002.h5"))["classes"]],
                         ["ant", "bee", "cat"])
        with open(self.path("packed/lockstep_classes.txt"), "w") as file:
            file.write("ant\ncat\ndog\n")
        result = self.run_job(0, "--config", self.config({**changes, "data.format": "tfrecord",
                                                          "data.train": "packed/train-*"}))
        self.assert_one_error(result, kit.DATA, "class 1 is 'bee'")

    def test_exported_files_say_which_crop_evaluation_takes(self):
        result = self.run_job(0, "export", "run", "--to", "out.h5")
        self.assertEqual(result.code, kit.OK, str(result))
        with h5py.File(self.path("out.h5")) as file:
            self.assertEqual(file.attrs["evaluation_crop"].decode() if isinstance(file.attrs["evaluation_crop"], bytes)
                             else file.attrs["evaluation_crop"], "whole image, resized to 16 x 16")


if __name__ == "__main__":
    kit.main()
