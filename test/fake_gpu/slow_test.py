"""The program on the fake device with every model, in 16 bits on one rank and two, and on the digits: minutes to hours."""

import os

import numpy

from cases import MODELS, SMALL, TOLERANCE, FakeGpuCase, FusedCase, InterruptedCase, kit


def slow_case(model, ranks, devices, accumulate, share):
    def test(self):
        changes = {**MODELS[model], "train.accumulate": accumulate}
        self.check_orders(changes, ranks, devices, overrides={"device.share": "true"} if share else None,
                          tolerance=TOLERANCE[model])

    return test


class SlowModels(FakeGpuCase):
    """Every model, accumulation 1 and 3, on one rank, two devices over NCCL and one device over MPI."""


for _model in MODELS:
    for _accumulate in (1, 3):
        for _where, _ranks, _devices, _share in (("one_rank", 0, 1, False), ("nccl", 2, 2, False), ("mpi", 2, 1, True)):
            setattr(SlowModels, f"test_{_model}_accumulating_{_accumulate}_{_where}",
                    slow_case(_model, _ranks, _devices, _accumulate, _share))


class SlowInterruptions(InterruptedCase):
    """The others of the models, and two ranks."""


for _model in MODELS:
    for _what, _check in (("resumed", "check_resumed"), ("went_back", "check_went_back")):
        setattr(SlowInterruptions, f"test_{_model}_{_what}",
                lambda self, model=_model, check=_check: getattr(self, check)(model, ranks=2, devices=2))
    setattr(SlowInterruptions, f"test_{_model}_accumulating_3_resumed_over_mpi",
            lambda self, model=_model: self.check_resumed(model, 2, 1, {"device.share": "true", "train.accumulate": "3"}))


class SlowRanks(FusedCase):
    """The number of ranks in 16 bits, also in large networks of fused convolutions."""

    def gradient_and_loss(self, name, config, ranks, overrides):
        directory = self.run_once(name, config, ranks, "lazy", overrides, devices=2)
        slots = kit.datasets(os.path.join(directory, kit.checkpoints(directory)[-1]))
        names = sorted(key for key in slots if key.startswith("optimizer/momentum/"))  # the gradient, after one step
        return numpy.concatenate([slots[key].ravel() for key in names]).astype(float), kit.per_step(directory, "loss")[1]

    def test_bf16(self):
        self.check_ranks({**self.changes(), "train.precision": "bf16"})

    def check_synchronized(self, precision):
        """Where ranks normalize together, they compute what one does with one batch, but for the rounding to 16 bits:
        convolutions that sum for the norm behind them do so before they round, which norms of several ranks cannot."""
        config = self.config({**self.changes(), "train.precision": precision, "train.steps": 1}, SMALL)
        batch = SMALL["train"]["batch_size"]
        one, loss = self.gradient_and_loss("one", config, 0, {"train.batch_size": str(2 * batch)})
        for sync, bounds in (("true", (0, 0.1)), ("false", (0.3, 1))):
            two, other_loss = self.gradient_and_loss(sync, config, 2, {"train.sync_batch_norm": sync})
            distance = numpy.linalg.norm(two - one) / numpy.linalg.norm(one)
            self.assertTrue(bounds[0] < distance < bounds[1], f"sync_batch_norm {sync}: {distance}")
            self.assertEqual(abs(other_loss / loss - 1) < 1e-3, sync == "true")


class SlowDigits(FakeGpuCase):
    """The digits recipe continued in 16 bits beside float32: same weights, slots, data and dropout, on the same device.

    It begins after 60 steps on the CPU. In a network that has learned nothing, norms over 16 nearly equal values magnify
    rounding so much that float32 differs from float32 by per cents, and every loss is that of guessing. After 60 steps
    an error of the weights or the gradients shows: the loss is half of that.

    Losses: with the unit roundoff u, 2^-9 in bf16 and 2^-12 in fp16, each of about 190 tensors between images and logits
    is rounded with an error of u/sqrt(3). Independent ones make sqrt(190/3) u = 8 u of the logits, and less of a batch's
    loss. Twice that is allowed at each step (seen: 0.0051 of 0.031 in bf16, 0.0005 of 0.0039 in fp16).

    Gradients: norms magnify rounding on the way back; float32 with other instructions differs by 0.02. Their mean over
    the steps may differ by half of its length: another batch's differs by 1.4, and none by 1 (seen: 0.30 and 0.13). Its
    length, to which independent errors add little, is compared to a tenth, which no factor passes that is left out."""
    RECIPE = {"schedule.name": "constant", "schedule.warmup_epochs": 0, "optimizer.lr": 1e-3, "ema.decay": 0,
              "data.validation": "", "checkpoint.every_seconds": 0, "log.every_steps": 1, "watchdog.abort_seconds": 600}

    def average(self, directory):
        slots = kit.datasets(os.path.join(directory, kit.checkpoints(directory)[-1]))
        names = sorted(key for key in slots if key.startswith("optimizer/exp_avg/"))
        return numpy.concatenate([slots[key].ravel() for key in names]).astype(float)

    def test_16_bits_follow_float32(self):
        learned = self.run_once("learned", "digits", 0, "eager", {**self.RECIPE, "train.steps": 60, "device.kind": "cpu"})
        whole = {}
        for precision in ("float32", "bf16", "fp16"):
            whole[precision] = self.run_once(precision, "digits", 0, "eager", {
                **self.RECIPE, "train.steps": 64, "device.kind": "gpu", "device.tune": "off", "train.precision": precision,
                "checkpoint.resume": os.path.join(learned, "latest"), "checkpoint.allow_changes": "true"})
        self.assertLess(max(kit.per_step(whole["float32"], "loss").values()), 2)  # guessing has a loss of 2.3
        before = 0.9 ** 4 * self.average(learned)  # what four steps leave of it
        expected = self.average(whole["float32"]) - before
        for precision, unit in (("bf16", 2 ** -9), ("fp16", 2 ** -12)):
            self.assert_same_losses(whole[precision], whole["float32"], (16 * unit, 16 * unit))
            gradient = self.average(whole[precision]) - before
            length = numpy.linalg.norm(expected)
            self.assertLess(numpy.linalg.norm(gradient - expected) / length, 0.5, precision)
            self.assertLess(abs(numpy.linalg.norm(gradient) / length - 1), 0.1, precision)


for _precision in ("fp16", "bf16"):
    setattr(SlowRanks, f"test_{_precision}_synchronized", lambda self, precision=_precision: self.check_synchronized(precision))
    for _model in ("resnet50", "inception_v3"):
        setattr(SlowRanks, f"test_{_precision}_{_model}", lambda self, precision=_precision, model=_model: self.check_ranks(
            {**MODELS[model], "train.steps": 2, "train.precision": precision}))


if __name__ == "__main__":
    kit.main()
