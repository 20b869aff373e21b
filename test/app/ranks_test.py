"""Any number of ranks trains the same model."""

import concurrent.futures
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
        for ranks, accumulate in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 4), (2, 3)):
            self.train(ranks, config, {"checkpoint.directory": f"run{ranks}.{accumulate}",
                                       "train.accumulate": accumulate})
        one = kit.datasets(self.path("run1.1/latest"))
        losses = kit.per_step(self.path("run1.1"), "loss")
        self.assertEqual(sorted(losses), list(range(1, 21)))
        for ranks in ("2.1", "3.1", "4.1", "1.4", "2.3"):
            other = kit.datasets(self.path(f"run{ranks}/latest"))
            self.assertEqual(one.keys(), other.keys())
            for name in [name for name in one if name.startswith("model/")]:
                distance = numpy.linalg.norm(other[name] - one[name]) / numpy.linalg.norm(one[name])
                self.assertLess(distance, 1e-5, f"{name} on {ranks} ranks")
            for step, loss in kit.per_step(self.path(f"run{ranks}"), "loss").items():
                self.assertAlmostEqual(loss / losses[step], 1, delta=1e-5, msg=f"step {step} on {ranks} ranks")

    # Batch normalization over all ranks' samples makes the law hold for networks that have it. A hundred layers whose last
    # grids hold one value a sample amplify rounding by 1e5: other vector instructions on one rank move this gradient by 2 %.
    # What is left out of a sum moves it by its own size.
    def test_with_synchronized_batch_norm_the_number_of_ranks_does_not_matter_either(self):
        config = self.config({"train.batch_size": None, "train.global_batch": 12, "train.steps": 1, "optimizer.name": "sgd",
                              "optimizer.lr": 0.01, "ema.decay": 0.0, "train.sync_batch_norm": True}, kit.LARGE)

        def gradient_and_loss(ranks, sync=True):
            directory = f"run{ranks}{sync}"
            self.train(ranks, config, {"checkpoint.directory": directory, "train.sync_batch_norm": str(sync).lower()})
            slots = kit.datasets(self.path(directory, "latest"))  # after one step the momentum is the gradient
            names = sorted(name for name in slots if name.startswith("optimizer/momentum/"))
            gradient = numpy.concatenate([slots[name].ravel() for name in names])
            return gradient.astype(numpy.float64), kit.per_step(self.path(directory), "loss")[1]

        one, loss = gradient_and_loss(1)

        def distance(gradient):
            return numpy.linalg.norm(gradient - one) / numpy.linalg.norm(one)

        for ranks in (2, 3):
            gradient, other_loss = gradient_and_loss(ranks)
            self.assertAlmostEqual(other_loss / loss, 1, delta=1e-4, msg=f"{ranks} ranks")
            self.assertLess(distance(gradient), 0.06, f"{ranks} ranks")
        gradient, other_loss = gradient_and_loss(2, sync=False)
        self.assertGreater(distance(gradient), 0.3)
        self.assertGreater(abs(other_loss / loss - 1), 1e-3)

    # Rank 0 sees dark images alone and rank 1 bright ones; the statistics are of both.
    def test_running_statistics_are_those_of_the_global_batch_when_ranks_see_different_images(self):
        random = numpy.random.default_rng(1)
        samples = [(kit.png(random.integers(low, low + 40, (80, 80, 3), dtype=numpy.uint8)), i % 10)
                   for i, low in enumerate((0, 0, 200, 200))]
        kit.write(self.path("train.tfrecord"), kit.tfrecord(samples))
        config = self.config({"data.train": "train.tfrecord", "data.shuffle": False, "train.batch_size": None,
                              "train.global_batch": 4, "train.steps": 1, "optimizer.name": "sgd", "ema.decay": 0.0},
                             kit.LARGE)
        for ranks in (1, 2):
            self.train(ranks, config, {"checkpoint.directory": f"run{ranks}"})
        one, two = (kit.datasets(self.path(f"run{ranks}/latest")) for ranks in (1, 2))
        for name in ("running_mean", "running_var"):
            path = f"model/Conv2d_1a_3x3.bn.{name}"  # later layers see what each rank normalized by itself
            numpy.testing.assert_allclose(two[path], one[path], rtol=1e-5, atol=1e-6)

    def test_evaluation_prints_the_same_figures_for_any_number_of_ranks_and_batch_size(self):
        self.records(60)
        self.records(25, "validation.tfrecord", seed=1)
        config = self.config({"data.validation": "validation.tfrecord", "train.steps": 20, "optimizer.lr": 0.05,
                              "train.batch_size": None, "train.global_batch": 20})
        trained = self.train(2, config)
        expected = [line for line in trained.output.splitlines() if line.startswith("evaluation at step 20 ")]
        self.assertEqual(len(expected), 1, str(trained))
        for ranks in (1, 2, 3):  # three ranks do not divide the global batch
            for batch in (0, 4, 25):
                result = self.run_job(ranks, "evaluate", "--config", config, "--eval.batch_size", str(batch))
                self.assertEqual(result.code, kit.OK, str(result))
                self.assert_once(result, expected[0])

    def test_a_scaled_rate_is_printed_once_with_its_origin(self):
        self.records(48)
        config = self.config({"train.steps": 1, "train.accumulate": 2, "optimizer.scale_lr": True})
        result = self.train(2, config)
        self.assert_once(result, "learning rate 0.001875 (optimizer.lr = 0.01 x global batch of 48 / 256)")
        self.assert_once(result, "1 steps of 48 samples (12 x 2 batches a rank)")
        self.assertAlmostEqual(kit.per_step(self.path("run"), "lr")[1], 0.001875)

    def test_evaluation_counts_every_sample_once_on_any_number_of_ranks(self):
        self.records(5)
        for samples in (1, 2, 3, 5, 7, 23, 24, 25, 59, 60):
            validation = self.records(samples, f"validation{samples}.tfrecord", seed=samples)
            config = self.config({"data.validation": validation, "data.train": validation, "train.steps": 2,
                                  "train.batch_size": 3, "model.image_size": 8})
            results = set()
            for ranks in (1, 2, 3, 4):
                directory = f"run{samples}.{ranks}"
                self.train(ranks, config, {"checkpoint.directory": directory, "train.batch_size": 12 // ranks})
                row = kit.metrics(self.path(directory), "eval")[-1]
                self.assertEqual(row["examples"], samples, f"{samples} samples on {ranks} ranks")
                results.add((row["top1"], row["top5"], round(row["loss"], 4)))
            self.assertEqual(len(results), 1, f"{samples} samples: {results}")

    # Hardly any message fits into the eager limit (128 is the least that Open MPI 5 takes), or everything goes through
    # sockets.
    def test_saves_between_steps_do_not_depend_on_how_messages_travel(self):
        self.records(30)
        config = self.config({"checkpoint.every_steps": 2, "checkpoint.keep": 100, "comm.transport": "mpi"})
        # Open MPI 4 and 5 call shared memory's module vader and sm; each passes over the other's setting.
        small = ["--mca", "btl_vader_eager_limit", "128", "--mca", "btl_sm_eager_limit", "128"]
        sockets = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        for directory, flags in (("small", small), ("sockets", sockets)):
            self.train(2, config, {"checkpoint.directory": directory}, flags=flags)
            for name in kit.checkpoints(self.path(directory)):
                self.assertIn("model/fc5.weight", kit.datasets(self.path(directory, name)))

    # A sum of two terms has but one order; the ranks of one host make it where all of them can reach it.
    def test_gradients_of_two_ranks_have_the_same_sums_in_shared_memory_and_over_mpi(self):
        self.records(30)
        saves = []
        for carrier, dtype in (("auto", "float32"), ("mpi", "float32"), ("auto", "bf16"), ("mpi", "bf16")):
            directory = f"{carrier}.{dtype}"
            result = self.train(2, self.config({"comm.transport": carrier, "comm.gradient_dtype": dtype,
                                                "comm.bucket_mb": 0.01, "checkpoint.directory": directory},
                                               name=directory + ".toml"))
            told = result.count("gradients are summed in memory that the 2 ranks of this host share")
            self.assertEqual(told, 1 if carrier == "auto" else 0, str(result))
            saves.append(kit.datasets(self.path(directory, "latest")))
        for one, other in (saves[:2], saves[2:]):
            for name in [name for name in one if name.startswith("model/")]:
                numpy.testing.assert_array_equal(one[name], other[name], name)

    def test_rank_0_alone_decides_what_relative_paths_mean(self):
        self.records(30)
        config = self.config({"train.steps": 2})
        # Not by a second program on mpirun's command line: Debian 13's mpirun crashes on any.
        elsewhere = 'test "$OMPI_COMM_WORLD_RANK" = 0 || cd /; exec "$@"'
        result = self.start_command([kit.MPIRUN, "--wdir", self.directory, "-np", "2", "sh", "-c", elsewhere, "sh",
                                     kit.TRAINER, "--config", os.path.basename(config), "--checkpoint.directory",
                                     "here"], "/").wait()
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertEqual(kit.checkpoints(self.path("here")), ["step-00000002.h5"])
        self.assertFalse(os.path.exists("/here"))


class SlowSizes(kit.TestCase):
    # The transports treat messages of different sizes differently; some jobs elsewhere hung at one size alone.
    def test_a_network_of_any_width_saves_and_ends_on_every_transport(self):
        base = kit.merged(kit.SMALL, {
            "model.name": "wide_mlp", "model.classes": 2, "model.vocabulary": 124, "model.max_ids": 16,
            "model.image_size": None, "data.format": "synthetic", "data.train": None, "data.normalize": "none",
            "train.steps": 6, "checkpoint.every_steps": 2, "checkpoint.keep": 100})

        def train(width, ranks, transport, flags):
            directory = f"{width}.{ranks}.{transport}"
            config = self.config({"model.hidden": [width, width], "checkpoint.directory": directory, **flags[0]}, base,
                                 directory + ".toml")
            self.train(ranks, config, flags=flags[1])
            names = kit.checkpoints(self.path(directory))
            self.assertIn("step-00000006.h5", names)
            for name in names:
                self.assertEqual(self.run_job(0, "inspect", "--verify", self.path(directory, name)).code, kit.OK, name)

        small = ["--mca", "btl_vader_eager_limit", "128", "--mca", "btl_sm_eager_limit", "128"]
        sockets = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        by_mpi = {"comm.transport": "mpi"}
        cases = [(width, ranks, name, flags) for width in (1, 10, 20, 64, 1024, 2048) for ranks in (2, 3)
                 for name, flags in (("shared", ({}, [])), ("small", (by_mpi, small)), ("sockets", (by_mpi, sockets)))]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for job in [pool.submit(train, *case) for case in cases]:
                job.result()


if __name__ == "__main__":
    kit.main()
