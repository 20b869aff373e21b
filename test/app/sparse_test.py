"""wide_mlp on sparse samples: it learns, its evaluation does not depend on ranks or batches, and it saves at any width."""

import os
import random
import re

import kit
import numpy

SPARSE = kit.merged(kit.SMALL, {
    "model.name": "wide_mlp", "model.classes": 2, "model.image_size": None, "model.hidden": [10, 10],
    "model.vocabulary": 50, "model.max_ids": 8,
    "data.format": "sparse_tfrecord", "data.train": "train", "data.validation": "validation",
    "optimizer.name": "adamw", "optimizer.lr": 0.01, "optimizer.epsilon": 1e-8,
})

SMALL_MESSAGES = ["--mca", "btl_vader_eager_limit", "128", "--mca", "btl_sm_eager_limit", "128"]
SOCKETS = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
# By name: comm.transport, and what mpirun is told. With auto gradients are summed in memory that the ranks share.
TRANSPORTS = {"shared": ("auto", []), "memory": ("mpi", []), "small": ("mpi", SMALL_MESSAGES), "sockets": ("mpi", SOCKETS)}


def samples(count, seed):
    """Ids below 25 speak for class 1, the others for class 0."""
    source = random.Random(seed)
    result = []
    for _ in range(count):
        ids = [source.randrange(50) for _ in range(source.randrange(9))]
        likely = sum(1 if i < 25 else -1 for i in ids) > 0
        result.append((int(likely), ids, [source.uniform(0.5, 1.5) for _ in ids]))
    return result


class Base(kit.TestCase):
    def data(self, name, count, seed, keys=("label", "ids", "values")):
        kit.write(self.path(name), kit.frame([kit.sparse_example(*sample, keys) for sample in samples(count, seed)]))

    def saves(self, ranks, width, transport, steps=8, **changes):
        """A save every second step, each of them whole and none skipped for the size of the network."""
        directory = f"{ranks}-{width}-{transport}"
        carrier, flags = TRANSPORTS[transport]
        config = self.config({"data.format": "synthetic", "data.train": [], "data.validation": [],
                              "comm.transport": carrier,
                              "model.hidden": [width] * 4, "train.steps": steps, "checkpoint.every_steps": 2,
                              "checkpoint.keep": 100, "checkpoint.directory": directory,
                              **{key.replace("__", "."): value for key, value in changes.items()}}, SPARSE)
        result = self.train(ranks, config, flags=["--oversubscribe", *flags])
        # The first save that is skipped has a line of its own; a total, when there are more, includes it.
        totals = [int(n) for n in re.findall(r"(\d+) checkpoints, \d+ of them of best states, were skipped", result.output)]
        skipped = result.count("is skipped: the one before is still being written") - len(totals) + sum(totals)
        found = kit.checkpoints(self.path(directory))
        # The last step is saved in any case, also when its save was due and skipped before.
        self.assertGreaterEqual(len(found) + skipped, steps // 2, str(result))
        self.assertIn(f"step-{steps:08d}.h5", found)
        verified = self.run_job(0, "inspect", "--verify", self.path(directory, "latest"))
        self.assertEqual(verified.code, kit.OK, str(verified))
        weights = kit.datasets(os.path.join(self.path(directory), found[-1]))
        self.assertEqual(weights["model/hidden.1.weight"].shape, (width, width))
        for name in found:
            os.remove(self.path(directory, name))


class Sparse(Base):
    def evaluation(self, ranks, config, **changes):
        options = {"checkpoint": "latest", **changes}
        arguments = [part for key, value in options.items() for part in ("--" + key, str(value))]
        result = self.run_job(ranks, "evaluate", "--config", config, *arguments, flags=["--oversubscribe"])
        self.assertEqual(result.code, kit.OK, str(result))
        return [line for line in result.output.splitlines() if line.startswith("evaluation at step")]

    def test_it_learns_and_evaluates_alike_on_any_ranks_and_batches(self):
        self.data("train", 400, 1)
        self.data("validation", 101, 2)
        config = self.config({"train.steps": 120}, SPARSE)
        self.train(2, config)
        row = kit.metrics(self.path("run"), "eval")[-1]
        self.assertGreater(row["auc"], 0.75)
        self.assertEqual(row["examples"], 101)
        expected = self.evaluation(1, config)
        self.assertIn(f"AUC {row['auc']:.5f}", expected[0])
        for ranks, batch in ((1, 7), (2, 64), (3, 5)):
            self.assertEqual(self.evaluation(ranks, config, **{"eval.batch_size": batch}), expected)

    def test_hidden_layers_learn_with_ftrl_from_a_small_accumulator(self):
        self.data("train", 400, 1)
        self.data("validation", 101, 2)
        config = self.config({"train.steps": 150, "optimizer.name": "ftrl", "optimizer.lr": 0.05}, SPARSE)
        for accumulator, directory in ((1e-6, "small"), (0.1, "usual")):
            self.train(2, config, {"checkpoint.directory": directory, "optimizer.initial_accumulator": accumulator})
        self.assertGreater(kit.metrics(self.path("small"), "eval")[-1]["auc"], 0.75)
        # TensorFlow's start value: the first step brings all start weights to about 0, as its own optimizer does.
        arrays = kit.datasets(self.path("usual", "latest"))
        self.assertLess(abs(arrays["model/hidden.1.weight"]).max(), 0.02)  # they began with a deviation of 0.45
        self.assertGreaterEqual(arrays["optimizer/accumulator/hidden.1.weight"].min(), numpy.float32(0.1))

    def test_of_two_classes_the_best_state_is_that_of_the_largest_area(self):
        self.data("train", 200, 1)
        self.data("validation", 101, 2)
        config = self.config({"train.steps": 12, "optimizer.lr": 0.05, "eval.every_epochs": 0.0, "eval.every_steps": 1,
                              "checkpoint.keep": 1, "checkpoint.keep_best": True}, SPARSE)
        for steps in (5, 12):  # the second run knows how good the first one was
            self.train(2, config, {"train.steps": steps})
            rows = {row["step"]: row["auc"] for row in kit.metrics(self.path("run"), "eval")}
            best = max(rows, key=rows.get)  # the first of equals
            self.assertEqual(os.readlink(self.path("run/best")), f"step-{best:08d}.h5")
            self.assertAlmostEqual(kit.datasets(self.path("run/best"))["training/best_score"][0], rows[best])

    def test_the_features_may_have_other_names(self):
        names = ("clicked", "features", "weights")
        self.data("train", 100, 1, names)
        keys = dict(zip(("data.label_key", "data.ids_key", "data.values_key"), names))
        self.train(1, self.config({"data.validation": [], "train.steps": 3, **keys}, SPARSE))
        wrong = self.config({"data.validation": [], "train.steps": 3}, SPARSE)
        self.assert_one_error(self.train(1, wrong, {"checkpoint.directory": "other"}, kit.DATA), kit.DATA,
                              "train record", "label", "clicked")

    def test_what_does_not_fit_the_model_is_named(self):
        self.data("train", 60, 1)
        for key, value, text in (("model.vocabulary", 40, "0..39"), ("model.max_ids", 4, "model.max_ids allows 4")):
            config = self.config({"data.validation": [], key: value}, SPARSE)
            self.assert_one_error(self.train(1, config, code=kit.DATA), kit.DATA, "train record", text)

    def test_saves_do_not_depend_on_the_width(self):
        for width in (10, 20):
            self.saves(2, width, "small")
            self.saves(3, width, "sockets")


class Slow(Base):
    def test_saves_do_not_depend_on_width_ranks_or_transport(self):
        for ranks in (2, 3):
            for transport in TRANSPORTS:
                for width in (1, 10, 20, 64, 1024):
                    with self.subTest(ranks=ranks, transport=transport, width=width):
                        self.saves(ranks, width, transport)

    def test_saves_of_wide_layers(self):
        for ranks in (2, 3):
            for transport in TRANSPORTS:
                with self.subTest(ranks=ranks, transport=transport):
                    # 50 million weights, and one slot of them: checkpoints of 400 MB.
                    self.saves(ranks, 4096, transport, steps=4, optimizer__name="sgd", checkpoint__keep=2,
                               train__batch_size=4)


if __name__ == "__main__":
    kit.main()
