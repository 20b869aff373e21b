"""A run that was stopped and resumed equals one that never stopped."""

import os
import shutil
import signal

import h5py
import numpy

import kit

# Every step is logged, so that metrics show each step's loss and rate; no schedule that depends on train.steps.
SMALL = kit.merged(kit.SMALL, {"train.batch_size": 7, "train.steps": 40, "model.dropout": 0.3, "ema.decay": 0.9,
                               "data.augment": "inception", "schedule.name": "exponential",
                               "schedule.decay_epochs": 1.0, "schedule.warmup_epochs": 2.0})

# A run of an earlier program: six steps, saved after each third.
OLD = os.path.join(os.path.dirname(__file__), "../golden/checkpoint")


class Case(kit.TestCase):
    def assert_same_runs(self, one, other, last_step):
        name = f"step-{last_step:08d}.h5"
        left, right = kit.datasets(self.path(one, name)), kit.datasets(self.path(other, name))
        self.assertEqual(left.keys(), right.keys())
        for key in left.keys() - {"config"}:
            self.assertEqual(left[key].tobytes(), right[key].tobytes(), key)
        for field in ("loss", "lr", "epoch"):
            rows = kit.per_step(self.path(one), field)
            self.assertEqual(sorted(rows), list(range(1, last_step + 1)))
            self.assertEqual(rows, kit.per_step(self.path(other), field), field)

    # Batch normalization, dropout, averages and AdamW's two slots.
    def check_large(self, ranks):
        config = self.config({"train.steps": 4, "train.audit_every": 1}, kit.LARGE)
        self.train(ranks, config, {"checkpoint.directory": "whole"})
        self.train(ranks, config, {"checkpoint.directory": "parts", "train.steps": 2})
        self.train(ranks, config, {"checkpoint.directory": "parts"})
        self.assert_same_runs("whole", "parts", 4)


class Resume(Case):
    # 60 samples and steps of 7 a rank: step 17 is in the middle of an epoch for one rank and for two.
    def test_stopping_in_the_middle_of_an_epoch_changes_no_bit(self):
        self.records(60)
        config = self.config(base=SMALL)
        for ranks in (1, 2):
            self.train(ranks, config, {"checkpoint.directory": f"whole{ranks}"})
            self.train(ranks, config, {"checkpoint.directory": f"parts{ranks}", "train.steps": 17})
            self.train(ranks, config, {"checkpoint.directory": f"parts{ranks}"})
            self.assert_same_runs(f"whole{ranks}", f"parts{ranks}", 40)

    def test_stopping_at_the_end_of_an_epoch_changes_no_bit(self):
        validation = self.records(10, "validation.tfrecord", seed=1)
        self.records(42)
        config = self.config({"train.steps": 12, "data.validation": validation}, SMALL)
        self.train(2, config, {"checkpoint.directory": "whole"})
        self.train(2, config, {"checkpoint.directory": "parts", "train.steps": 6})  # 84 samples
        self.train(2, config, {"checkpoint.directory": "parts"})
        self.assert_same_runs("whole", "parts", 12)
        evaluations = [[(row["step"], row["weights"], row["loss"]) for row in kit.metrics(self.path(run), "eval")]
                       for run in ("whole", "parts")]
        self.assertEqual(*evaluations)

    def test_optimizers_are_resumed_to_the_same_bits(self):
        self.records(60)
        for name, optimizer in (("adam", {"optimizer.name": "adam", "optimizer.lr": 1e-3, "optimizer.epsilon": 1e-8}),
                                ("nesterov", {"optimizer.nesterov": True})):
            config = self.config({"train.steps": 12, **optimizer}, SMALL)
            self.train(0, config, {"checkpoint.directory": name + "_whole"})
            self.train(0, config, {"checkpoint.directory": name + "_parts", "train.steps": 5})
            self.train(0, config, {"checkpoint.directory": name + "_parts"})
            self.assert_same_runs(name + "_whole", name + "_parts", 12)

    def test_statistics_and_averages_are_resumed_on_two_ranks(self):
        self.check_large(2)

    def test_a_run_stopped_by_a_signal_saves_and_continues(self):
        self.records(60)
        config = self.config({"train.steps": 120}, SMALL)
        for ranks in (1, 2):
            self.train(ranks, config, {"checkpoint.directory": f"whole{ranks}"})
            job = self.start(ranks, "--config", config, "--checkpoint.directory", f"parts{ranks}")
            job.wait_for_output("step 20,")
            job.process.send_signal(signal.SIGUSR1)
            stopped = job.wait()
            self.assertEqual(stopped.code, kit.STOPPED, str(stopped))
            self.assert_once(stopped, "stopped on request")
            self.assertEqual(len(kit.checkpoints(self.path(f"parts{ranks}"))), 1)
            self.train(ranks, config, {"checkpoint.directory": f"parts{ranks}"})
            self.assert_same_runs(f"whole{ranks}", f"parts{ranks}", 120)

    def test_any_stop_signal_to_any_rank_saves(self):
        self.records(60)
        config = self.config({"train.steps": 1_000_000})
        for number, (ranks, target) in ((signal.SIGUSR1, (2, 1)), (signal.SIGTERM, (2, 0)), (signal.SIGTERM, (0, 0)),
                                        (signal.SIGINT, (0, 0))):
            directory = f"run.{number}.{ranks}"
            job = self.start(ranks, "--config", config, "--checkpoint.directory", directory)
            job.wait_for_output("step 3,")
            os.kill(job.ranks()[target], number)
            os.kill(job.ranks()[target], number)  # launchers repeat themselves
            result = job.wait()
            self.assertEqual(result.code, kit.STOPPED, str(result))
            self.assertEqual(len(kit.checkpoints(self.path(directory))), 1)

    def test_another_number_of_ranks_continues_with_the_same_global_batch(self):
        self.records(60)
        config = self.config({"train.batch_size": None, "train.global_batch": 14, "train.steps": 30, "ema.decay": 0.0},
                             SMALL)
        self.train(1, config, {"checkpoint.directory": "one"})
        self.train(2, config, {"checkpoint.directory": "changing", "train.steps": 16})
        self.train(1, config, {"checkpoint.directory": "changing"})
        one, other = (kit.datasets(self.path(run, "latest")) for run in ("one", "changing"))
        for name in [name for name in one if name.startswith(("model/", "optimizer/"))]:
            distance = numpy.linalg.norm(other[name] - one[name]) / numpy.linalg.norm(one[name])
            self.assertLess(distance, 1e-5, name)


class EarlierProgram(Case):
    def saved(self, path):
        """Everything in a checkpoint that does not depend on when and where it was written."""
        with h5py.File(path, "r") as file:
            attributes = {key: value for key, value in file.attrs.items() if key != "created"}
        contents = {name: (values.dtype, values.shape, values.tobytes()) for name, values in kit.datasets(path).items()
                    if name != "config"}
        return attributes, contents

    def test_its_checkpoint_is_read_and_written_again_to_the_same_bits(self):
        old = os.path.join(OLD, "step-00000003.h5")
        self.train(0, os.path.join(OLD, "run.toml"), {"checkpoint.directory": self.path("new"), "checkpoint.resume": old,
                                                      "train.steps": 3})
        self.assertEqual(self.saved(self.path("new/step-00000003.h5")), self.saved(old))

    # Vector units differ in rounding, so the weights after more steps are compared as numbers.
    def test_its_run_continues_as_it_did_then(self):
        os.mkdir(self.path("run"))
        shutil.copy(os.path.join(OLD, "step-00000003.h5"), self.path("run"))
        self.train(0, os.path.join(OLD, "run.toml"), {"checkpoint.directory": self.path("run")})
        then, now = (kit.datasets(os.path.join(run, "step-00000006.h5")) for run in (OLD, self.path("run")))
        self.assertEqual(then.keys(), now.keys())
        for name in then.keys() - {"config"}:
            if then[name].dtype == numpy.float32:
                numpy.testing.assert_allclose(now[name], then[name], rtol=1e-5, atol=1e-7, err_msg=name)
            else:
                self.assertEqual(now[name], then[name], name)


class Slow(Case):
    # Two epochs of warm-up (17.1 steps), then a staircase of one epoch (8.6 steps): in warm-up, around its edges, between.
    def test_the_rate_of_each_step_does_not_depend_on_where_the_run_was_stopped(self):
        self.records(60)
        config = self.config(base=SMALL)
        self.train(1, config, {"checkpoint.directory": "whole"})
        for step in (3, 8, 9, 16, 17, 18, 25, 26, 30):
            self.train(1, config, {"checkpoint.directory": f"parts{step}", "train.steps": step})
            self.train(1, config, {"checkpoint.directory": f"parts{step}"})
            self.assert_same_runs("whole", f"parts{step}", 40)

    def test_statistics_and_averages_are_resumed_on_one_rank(self):
        self.check_large(1)

    def test_statistics_and_averages_are_resumed_on_three_ranks(self):
        self.check_large(3)


if __name__ == "__main__":
    kit.main()
