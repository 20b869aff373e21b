"""How text from the command line, files and the environment becomes a run's configuration."""

import os
import re
import shutil

import kit


class Config(kit.TestCase):
    def test_a_directory_of_any_name_in_front_of_a_pattern_stands_for_itself(self):
        """What one rank reads is in its line of the scan: 24 records here, 11 in the directories that a pattern would take."""
        for name in ("exp[lr=0.1]", "d[1]", "a{b,c}", "~", "two words,and a comma"):
            for decoy in ("d1", "ab", "ac"):
                kit.write(self.path(decoy, "data/train-1"), kit.tfrecord(kit.images(11)))
            kit.write(self.path(name, "data/train-0"), kit.tfrecord(kit.images(24)))
            config = kit.toml(kit.merged(kit.SMALL, {"data.train": "data/train-*", "train.steps": 1}))
            kit.write(self.path(name, "run.toml"), config)
            with self.subTest(name=name, started="above"):
                result = self.train(0, os.path.join(name, "run.toml"))
                self.assertIn("tfrecord: 24 records", result.output)
            with self.subTest(name=name, started="inside"):
                result = self.train(0, "run.toml", {"data.train": "data/{train,test}-?", "checkpoint.directory": "other"},
                                    cwd=self.path(name))
                self.assertIn("tfrecord: 24 records", result.output)
            shutil.rmtree(self.path("run"))

    def test_a_path_with_a_comma_is_quoted_on_the_command_line(self):
        self.records(24, "a,b.tfrecord")
        self.records(11, "c.tfrecord", seed=1)
        result = self.train(0, self.config(), {"data.train": '["a,b.tfrecord", "c.tfrecord"]', "train.steps": 1})
        self.assertIn("tfrecord: 35 records", result.output)

    def test_a_configuration_may_come_from_a_pipe(self):
        self.records(24)
        text = kit.toml(kit.merged(kit.SMALL, {"train.steps": 1}))
        kit.write(self.path("text"), text)
        result = self.start_command(["bash", "-c", f"exec {kit.TRAINER} --config <(sleep 0.2; cat text)"]).wait()
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertIn("compiling cifar10_cnn", result.output)
        shutil.rmtree(self.path("run"))
        result = self.start_command(["bash", "-c", f"cat text | {kit.MPIRUN} -np 2 {kit.TRAINER} --config /dev/stdin"]).wait()
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertIn("compiling cifar10_cnn", result.output)

    def test_a_stream_without_end_is_no_configuration_and_an_empty_one_is_worth_a_warning(self):
        self.assert_one_error(self.run_job(0, "--config", "/dev/zero"), kit.CONFIG, "/dev/zero: has more than")
        self.records(24)
        options = {k: str(v).lower() if isinstance(v, bool) else v for section, keys in kit.SMALL.items()
                   for k, v in ((f"{section}.{key}", value) for key, value in keys.items())}
        result = self.train(0, "/dev/null", {**options, "train.steps": 1})
        self.assertEqual(len(result.warnings()), 1, str(result))
        self.assertIn("/dev/null: this configuration is empty", result.warnings()[0])

    def test_what_omp_num_threads_says_is_taken_whole_or_not_at_all(self):
        self.records(24)
        config = self.config({"train.steps": 1})
        for text, threads in (("1", "1 compute thread,"), (" 2 , 1", "2 compute threads,")):
            with self.subTest(text=text):
                result = self.train(0, config, env={"OMP_NUM_THREADS": text})
                self.assertIn(threads, result.output)
                self.assertNotIn("OMP_NUM_THREADS = ", result.output)
                shutil.rmtree(self.path("run"))
        usual = self.train(0, config, env={"OMP_NUM_THREADS": None}).output.split("usable, ")[1].split(" compute")[0]
        for text in ("500m", "1e3", "99999", "0", "4,x"):
            with self.subTest(text=text):
                shutil.rmtree(self.path("run"))
                result = self.train(0, config, env={"OMP_NUM_THREADS": text})
                self.assert_once(result, f"environment variable OMP_NUM_THREADS = '{text}' is ignored")
                self.assertIn(f"usable, {usual} compute", result.output)
        for wrapper in (), self.of_rank_1('OMP_NUM_THREADS=2x exec "$@"'):
            with self.subTest(wrapper=wrapper):
                shutil.rmtree(self.path("run"))
                result = self.train(2, config, env={"OMP_NUM_THREADS": "many"}, wrapper=wrapper)
                said = [line.split("warning: ")[1] for line in result.warnings()]
                text = "environment variable OMP_NUM_THREADS = '{}' is ignored: a number from 1 to 1024 is wanted"
                if wrapper:
                    self.assertRegex(said.pop(), r"^rank 1@\S+: " + text.format("2x") + "$")
                    self.assertRegex(said.pop(), r"^rank 0@\S+: " + text.format("many") + "$")
                else:
                    self.assertEqual(said.pop(), text.format("many"))
                self.assertEqual(said, [])

    def test_an_end_of_the_job_that_is_over_or_unknown_is_ignored_where_slurm_says_so(self):
        self.records(24)
        config = self.config({"train.steps": 1})
        for text in ("Unknown", "0", "1700000000"):
            with self.subTest(text=text):
                result = self.train(2, config, env={"SLURM_JOB_END_TIME": text})
                self.assert_once(result, f"environment variable SLURM_JOB_END_TIME = '{text}' is ignored")
                self.assertIn("finished at step 1", result.output)
                shutil.rmtree(self.path("run"))
        result = self.run_job(2, "--config", config, env={"LOCKSTEP_JOB_END": "Unknown"})
        self.assert_one_error(result, kit.CONFIG, "LOCKSTEP_JOB_END = 'Unknown' is no time")

    def test_a_start_names_what_has_no_effect_and_what_is_unusual_once_and_explain_does(self):
        self.records(24)
        config = self.config({"train.steps": 1, "optimizer.name": "adamw", "optimizer.momentum": 0.9, "data.shuffle": False})
        for result in (self.train(2, config), self.run_job(0, "explain", "--config", config)):
            self.assertEqual(result.code, kit.OK, str(result))
            self.assert_once(result, f"no effect: optimizer.momentum = 0.9 ({config}:")
            self.assert_once(result, "no effect: model.aux_weight = 0.0 ")
            self.assert_once(result, "unusual: data.shuffle = false")

    def test_a_model_brings_its_own_defaults(self):
        explained = self.run_job(0, "explain", "--model.name", "cifar10_cnn", "--data.format", "synthetic",
                                 "--model.classes=10", "--train.epochs", "7").output
        for line in ('name = "adamw"  # default of cifar10_cnn', "image_size = 32  # default of cifar10_cnn",
                     "epochs = 7.0  # command line", "batch_size = 32"):
            self.assertIn(line + "\n", explained)

    def test_a_file_extends_another_and_explain_says_where_each_value_is_from(self):
        self.records(24)
        base = self.config({"train.steps": 1}, name="base/base.toml")
        kit.write(self.path("base/train.tfrecord"), kit.tfrecord(kit.images(24)))
        mine = kit.write(self.path("mine.toml"), 'extends = "base/base.toml"\n\n[train]\nseed = 5\n')
        explained = self.run_job(0, "explain", "--config", mine).output
        self.assertIn(f"\nseed = 5  # {mine}:4\n", explained)
        self.assertRegex(explained, rf"\nsteps = 1  # {base}:\d+\n")
        self.assertIn(f'train = ["{self.path("base/train.tfrecord")}"]', explained)
        self.assertIn("finished at step 1", self.train(2, mine).output)
        recipe = kit.write(self.path("recipe.toml"), 'extends = "digits"\n')
        self.assertIn("digits.toml:", self.run_job(0, "explain", "--config", recipe).output)
        for text, error in (("digit", "did you mean digits?"), ("none.toml", "none.toml: cannot open")):
            kit.write(recipe, f'extends = "{text}"\n')
            result = self.run_job(2, "--config", recipe)
            self.assert_one_error(result, kit.CONFIG, f"recipe.toml:1: extends = '{text}': ", error)

    def test_a_dumped_configuration_gives_the_same_run_from_any_directory(self):
        self.records(24)
        dumped = self.path("elsewhere/dump.toml")
        os.mkdir(self.path("elsewhere"))
        result = self.run_job(0, "--config", self.config(), "--train.steps", "3", "--dump-config", dumped)
        self.assertEqual((result.code, result.output), (kit.OK, ""))
        self.assertFalse(os.path.exists(self.path("run")))
        self.train(1, self.config(), {"train.steps": 3})
        before = kit.datasets(self.path("run/latest"))
        shutil.rmtree(self.path("run"))
        result = self.train(1, dumped, cwd=self.path("elsewhere"))
        self.assertEqual(result.count("no effect:"), 1, "model.aux_weight, as before")
        after = kit.datasets(self.path("run/latest"))
        self.assertEqual(before.keys(), after.keys())
        for name, array in before.items():
            if name.startswith(("model/", "optimizer/")):
                self.assertEqual(array.tobytes(), after[name].tobytes(), name)
        again = self.run_job(0, "--config", dumped, "--dump-config", "-").output
        with open(dumped, encoding="utf-8") as file:
            self.assertEqual(re.sub(" +#.*", "", again), re.sub(" +#.*", "", file.read()))
        refused = self.run_job(0, "check", "--config", dumped, "--dump-config", "-")
        self.assert_one_error(refused, kit.CONFIG, "leave the subcommand out")

    def test_the_time_in_a_directory_makes_a_new_one_at_every_start(self):
        self.records(24)
        config = self.config({"train.steps": 1, "checkpoint.directory": "runs/{model}{{x}}/{time}"})
        for _ in range(2):  # perhaps within the same second
            self.assertIn("finished at step 1", self.train(1, config).output)
        runs = sorted(os.listdir(self.path("runs/cifar10_cnn{x}")))
        self.assertEqual(len(runs), 2)
        for name in runs:
            self.assertRegex(name, r"^\d{8}-\d{6}(-2)?$")
            self.assertEqual(kit.checkpoints(self.path("runs/cifar10_cnn{x}", name)), ["step-00000001.h5"])
        stopped = self.train(2, config, {"train.steps": 1000000, "train.max_seconds": 0.3}, kit.STOPPED)
        directory = re.search(r"the same command with --checkpoint.directory (\S+) continues the run", stopped.output)[1]
        self.assertIn("resuming at step", self.train(2, config, {"checkpoint.directory": directory}).output)
        self.assert_one_error(self.run_job(2, "--config", config, "--checkpoint.resume", "must"), kit.CONFIG, "{time}")
        self.assert_one_error(self.run_job(1, "evaluate", "--config", config), kit.CONFIG, "{time}")
        result = self.train(1, config, env={"SLURM_JOB_ID": "77"})
        self.assertIn("{job} stays the same", "".join(result.warnings()))

    def test_the_log_has_times_and_levels(self):
        self.records(24)
        config = self.config({"train.steps": 2, "model.hidden": [1]})
        output = self.train(2, config, {"log.time": "true"}).output
        timed = [line for line in output.splitlines() if re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: \S", line)]
        self.assertEqual(len(timed), len(output.splitlines()), output)
        self.assertEqual(len(re.findall(r"^\d{4}-\S+ \S+: step 2, loss = ", output, re.MULTILINE)), 1)
        shutil.rmtree(self.path("run"))
        quiet = self.train(2, config, {"log.level": "warning"})
        self.assertEqual(quiet.output, "")
        self.assertEqual(len(kit.metrics(self.path("run"), "train")), 2)
        self.assert_one_error(self.run_job(1, "--config", config, "--log.level", "loud"), kit.CONFIG, "log.level = 'loud'")

    def test_deep_configurations_are_refused(self):
        deep = kit.write(self.path("deep.toml"), "[train]\n" + "a." * 100000 + "a = 1\n")
        result = self.run_job(0, "--config", deep)
        self.assert_one_error(result, kit.CONFIG, "deep.toml:2: not valid TOML: a dotted key has more than 16 parts")


class SlowSweep(kit.TestCase):
    def test_the_documented_sweep_trains_each_value_once_and_goes_on_where_it_stopped(self):
        with open(os.path.join(os.path.dirname(__file__), "../../docs/configuration.md"), encoding="utf-8") as file:
            loop = re.search(r"^    (for lr in .*?\n    done)\n", file.read(), re.MULTILINE | re.DOTALL)[1]
        self.records(24)
        self.config({"train.steps": 2}, name="run.toml")
        path = os.pathsep.join([os.path.dirname(kit.TRAINER), os.path.dirname(kit.MPIRUN), os.environ["PATH"]])
        rates = {"lr0.01": 0.01, "lr0.03": 0.03, "lr0.1": 0.1}
        for trained in (True, False):
            result = self.start_command(["bash", "-c", loop], env={"PATH": path}).wait()
            self.assertEqual(result.code, kit.OK, str(result))
            self.assertEqual(result.count("nothing will be trained"), 0 if trained else 3)
            self.assertEqual(sorted(os.listdir(self.path("sweep"))), sorted(rates))
            for name, rate in rates.items():
                self.assertEqual(kit.per_step(self.path("sweep", name), "lr"), {1: rate, 2: rate})


if __name__ == "__main__":
    kit.main()
