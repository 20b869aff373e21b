"""The subcommands beside training."""

import os
import shutil
import subprocess

import kit

NO_MPI = {name: None for name in os.environ if name.startswith(("OMPI_", "PMIX_", "PRTE_"))}


class Commands(kit.TestCase):
    def test_helps_and_version_need_nothing(self):
        for arguments in (["--version"], ["--help"], ["evaluate", "--help"], ["explain", "--help"], ["inspect", "--help"]):
            result = self.run_job(0, *arguments, env=NO_MPI)
            self.assertEqual(result.code, kit.OK, str(result))
            self.assertIn("trainer", result.output)

    def test_version_names_the_commit_and_the_libraries(self):
        lines = self.run_job(0, "--version", env=NO_MPI).output.splitlines()
        self.assertRegex(lines[0], r"^trainer \(Lockstep\) \d+\.\d+\.\d+$")
        self.assertRegex(lines[1], r"^commit: (unknown|[0-9a-f]{7,40}(, changed)?)$")
        self.assertRegex(lines[2], r"^libraries: Open MPI v[\d.]+\w*, HDF5 \d[\d.]+, oneDNN \d[\d.]+, glibc \d[\d.]+$")
        self.assertRegex(lines[3], r"^compiler: \w+ \d[\d.]+, \w+$")
        self.assertEqual(len(lines), 4)

    def test_bash_completes_subcommands_options_and_words(self):
        kit.write(self.path("trainer.bash"), self.run_job(0, "--help-bash", env=NO_MPI).output)
        script = """. ./trainer.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trainer; echo ${COMPREPLY[*]}"""
        for line, expected in (("ev", "evaluate"), ("predict run --fo", "--format"),
                               ("predict run --format ", "table csv json"), ("--optimizer.name rmsprop_", "rmsprop_tf"),
                               ("check --checkpoint.dir", "--checkpoint.directory"), ("evaluate --conf", "--confusion --config"),
                               ("inspect run/", ""), ("export run --train.see", ""), ("export run --to ", "")):
            found = subprocess.run(["bash", "-uc", script, "bash", "trainer", *line.split(" ")], cwd=self.directory, check=True,
                                   capture_output=True, text=True).stdout.strip()
            self.assertEqual(found, expected, line)

    def test_the_manual_page_has_no_mistakes(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        page = self.run_job(0, "--help-man", env=NO_MPI).output
        result = subprocess.run(["groff", "-ww", "-man", "-Tascii"], input=page, check=True, capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        self.assertIn("75: stopped, and the state is saved.", " ".join(result.stdout.split()))

    def test_inspect_tells_whole_files_from_damaged_ones_without_mpi(self):
        self.records(10)
        self.train(1, self.config({"train.steps": 2}))
        file = self.path("run/step-00000002.h5")
        for arguments in ([], ["--verify"]):
            result = self.run_job(0, "inspect", file, *arguments, env=NO_MPI)
            self.assertEqual(result.code, kit.OK, str(result))
            self.assertIn("step 2", result.output)
        self.assertIn("/model/fc5.weight [10,192]", result.output)
        with open(file, "r+b") as stream:
            stream.seek(100_000)
            byte = stream.read(1)
            stream.seek(100_000)
            stream.write(bytes([byte[0] ^ 1]))
        self.assertEqual(self.run_job(0, "inspect", file, "--verify", env=NO_MPI).code, kit.CHECKPOINT)
        self.assertEqual(self.run_job(0, "inspect", "nowhere.h5", env=NO_MPI).code, kit.CHECKPOINT)

    def test_explain_runs_nothing(self):
        result = self.run_job(0, "explain", "--config", "digits", env=NO_MPI)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertIn('name = "inception_v3"', result.output)
        self.assertEqual(os.listdir(self.directory), [])

    def test_explain_prints_the_rate_by_epoch_and_takes_the_global_batch(self):
        config = self.config({"train.batch_size": None, "train.global_batch": 512, "train.steps": None, "train.epochs": 3.0,
                              "optimizer.scale_lr": True, "schedule.name": "step", "schedule.decay_rate": 0.5,
                              "schedule.decay_epochs": 1.0, "schedule.warmup_epochs": 1.0})
        result = self.run_job(0, "explain", "--config", config, env=NO_MPI)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertIn("memory of one rank (batch of 512)", result.output)
        self.assertIn("learning rate: 0.02 (optimizer.lr = 0.01 x global batch of 512 / 256), schedule step", result.output)
        rates = [line.split()[-1] for line in result.output.splitlines() if line.startswith("  from epoch")]
        self.assertEqual(rates[1:], ["0.01", "0.005"])
        self.assertLess(float(rates[0]), 1e-6)  # the first step of warm-up
        result = self.run_job(0, "explain", "--config", config, "--schedule.name", "constant", "--schedule.warmup_epochs", "0",
                              env=NO_MPI)
        self.assertEqual([line.split() for line in result.output.splitlines() if line.startswith("  from epoch")],
                         [["from", "epoch", "0", "0.02"]])

    def test_pack_writes_smaller_pictures_that_train_as_the_originals(self):
        self.records(24, side=40)
        self.records(10, "validation.tfrecord", side=40, seed=1)
        config = self.config({"data.validation": "validation.tfrecord", "data.shuffle": False, "train.steps": 3})
        result = self.run_job(0, "pack", "--config", config, "--to", "packed", "--png", "--records_per_file", "10",
                              env=NO_MPI)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertIn("24 of 24 records in 3 files", result.output)
        self.assertIn("24 of them shrunk to a short side of 19", result.output)
        self.assertEqual(sorted(os.listdir(self.path("packed"))),
                         [f"train-{i:05}-of-00003" for i in range(3)] + ["validation-00000-of-00001"])
        used = ["--data.train", "packed/train-*", "--data.validation", "packed/validation-*"]
        for directory, options in (("plain", []), ("small", used)):
            trained = self.run_job(1, "--config", config, "--checkpoint.directory", directory, *options)
            self.assertEqual(trained.code, kit.OK, str(trained))
        plain, small = (kit.per_step(self.path(directory), "loss") for directory in ("plain", "small"))
        for step, loss in plain.items():  # resized twice and rounded: almost the same pictures
            self.assertAlmostEqual(small[step], loss, delta=0.05)
        again = self.run_job(0, "pack", "--config", config, "--to", "packed", env=NO_MPI)
        self.assert_one_error(again, kit.CONFIG, "train-00000-of-00003", "is there already")
        other = self.run_job(0, "pack", "--config", config, "--to", "other", "--data.format", "synthetic", env=NO_MPI)
        self.assert_one_error(other, kit.CONFIG, "data.format", "pack")

    def test_evaluate_finds_the_numbers_of_the_run_itself(self):
        self.records(60)
        self.records(25, "validation.tfrecord", seed=1)
        config = self.config({"data.validation": "validation.tfrecord", "ema.decay": 0.9, "train.steps": 30})
        trained = self.train(2, config)
        expected = [line for line in trained.output.splitlines() if line.startswith("evaluation at step 30 ")]
        self.assertEqual(len(expected), 2, str(trained))
        before = os.listdir(self.path("run"))
        for ranks in (0, 1, 2, 3):
            for checkpoint in ([], ["--checkpoint", "latest"], ["--checkpoint", "run/step-00000030.h5"]):
                result = self.run_job(ranks, "evaluate", "--config", config, *checkpoint)
                self.assertEqual(result.code, kit.OK, str(result))
                for line in expected:
                    self.assert_once(result, line)
        self.assertEqual(os.listdir(self.path("run")), before)
        missing = self.run_job(2, "evaluate", "--config", config, "--checkpoint", "nowhere.h5")
        self.assert_one_error(missing, kit.CHECKPOINT, "nowhere.h5")

    # Running statistics, no augmentation, no change to the model: what was learned by heart is known.
    def test_a_set_known_by_heart_is_known_in_evaluation_too_with_batch_normalization(self):
        self.records(32, side=32)
        config = self.config({"model.name": "resnet50", "model.image_size": 32, "model.init": "fan_in",
                              "model.bn_momentum": 0.3, "data.validation": "train.tfrecord", "train.batch_size": 16,
                              "train.steps": 30, "train.sync_batch_norm": True, "train.label_smoothing": 0.0,
                              "optimizer.name": "adamw", "optimizer.lr": 0.001, "optimizer.epsilon": 1e-8,
                              "schedule.name": "cosine", "eval.every_epochs": 0.0})
        trained = self.train(2, config)
        evaluation, = [line for line in trained.output.splitlines() if line.startswith("evaluation at step 30 ")]
        row = kit.metrics(self.path("run"), "eval")[-1]
        self.assertEqual((row["top1"], row["examples"]), (1.0, 32), str(trained))
        self.assertLess(row["loss"], 0.1)
        for ranks, batch in ((1, 1), (2, 16)):
            result = self.run_job(ranks, "evaluate", "--config", config, "--train.batch_size", str(batch))
            self.assert_once(result, evaluation)


if __name__ == "__main__":
    kit.main()
