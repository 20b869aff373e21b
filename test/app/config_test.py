"""How text from the command line, files and the environment becomes a run's configuration."""

import os
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

    def test_deep_configurations_are_refused(self):
        deep = kit.write(self.path("deep.toml"), "[train]\n" + "a." * 100000 + "a = 1\n")
        result = self.run_job(0, "--config", deep)
        self.assert_one_error(result, kit.CONFIG, "deep.toml:2: not valid TOML: a dotted key has more than 16 parts")


if __name__ == "__main__":
    kit.main()
