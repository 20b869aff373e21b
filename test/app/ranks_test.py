"""Any number of ranks trains the same model."""

import os

import numpy

import kit


class RankCounts(kit.TestCase):
    # Without batch normalization, N ranks with 24 / N samples each compute what one rank does with all 24, up to the
    # order of sums. The seed is one with which no two inputs of a maximum come so near to each other that rounding
    # decides between them: such a flip moves one gradient by far more than rounding does.
    def test_weights_and_losses_do_not_depend_on_the_number_of_ranks(self):
        self.records(100)
        config = self.config({"train.batch_size": None, "train.global_batch": 24, "optimizer.momentum": 0.9,
                              "train.seed": 3})
        for ranks in (1, 2, 3, 4):
            self.train(ranks, config, {"checkpoint.directory": f"run{ranks}"})
        one = kit.datasets(self.path("run1/latest"))
        losses = kit.per_step(self.path("run1"), "loss")
        self.assertEqual(sorted(losses), list(range(1, 21)))
        for ranks in (2, 3, 4):
            other = kit.datasets(self.path(f"run{ranks}/latest"))
            self.assertEqual(one.keys(), other.keys())
            for name in [name for name in one if name.startswith("model/")]:
                distance = numpy.linalg.norm(other[name] - one[name]) / numpy.linalg.norm(one[name])
                self.assertLess(distance, 1e-5, f"{name} on {ranks} ranks")
            for step, loss in kit.per_step(self.path(f"run{ranks}"), "loss").items():
                self.assertAlmostEqual(loss / losses[step], 1, delta=1e-5, msg=f"step {step} on {ranks} ranks")

    def test_evaluation_counts_every_sample_once_on_any_number_of_ranks(self):
        self.records(5)
        for samples in (1, 2, 3, 5, 7, 23, 24, 25, 59, 60):
            validation = self.records(samples, f"validation{samples}.tfrecord", seed=samples)
            config = self.config({"data.validation": validation, "data.train": validation, "train.steps": 2,
                                  "train.batch_size": 3, "model.image_size": 8})
            results = set()
            for ranks in (1, 2, 3, 4):
                folder = f"run{samples}.{ranks}"
                self.train(ranks, config, {"checkpoint.directory": folder, "train.batch_size": 12 // ranks})
                row = kit.metrics(self.path(folder), "eval")[-1]
                self.assertEqual(row["examples"], samples, f"{samples} samples on {ranks} ranks")
                results.add((row["top1"], row["top5"], round(row["loss"], 4)))
            self.assertEqual(len(results), 1, f"{samples} samples: {results}")

    # Hardly any message fits into the eager limit (128 is the least that Open MPI 5 takes), or everything goes through
    # sockets.
    def test_saves_between_steps_do_not_depend_on_how_messages_travel(self):
        self.records(30)
        config = self.config({"checkpoint.every_steps": 2, "checkpoint.keep": 100})
        # Open MPI 4 and 5 call shared memory's module vader and sm; each passes over the other's setting.
        small = ["--mca", "btl_vader_eager_limit", "128", "--mca", "btl_sm_eager_limit", "128"]
        sockets = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        for folder, flags in (("small", small), ("sockets", sockets)):
            self.train(2, config, {"checkpoint.directory": folder}, flags=flags)
            for name in kit.checkpoints(self.path(folder)):
                self.assertIn("model/fc5.weight", kit.datasets(self.path(folder, name)))

    def test_rank_0_alone_decides_what_relative_paths_mean(self):
        self.records(30)
        config = self.config({"train.steps": 2})
        # Not by a second program on mpirun's command line: Debian 13's mpirun crashes on any.
        elsewhere = 'test "$OMPI_COMM_WORLD_RANK" = 0 || cd /; exec "$@"'
        result = self.start_command([kit.MPIRUN, "--wdir", self.folder, "-np", "2", "sh", "-c", elsewhere, "sh",
                                     kit.TRAINER, "--config", os.path.basename(config), "--checkpoint.directory",
                                     "here"], "/").wait()
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertEqual(kit.checkpoints(self.path("here")), ["step-00000002.h5"])
        self.assertFalse(os.path.exists("/here"))


if __name__ == "__main__":
    kit.main()
