"""Where the program computes: the GPU when there is one, the CPU when not, and a clear word about it."""

import os
import unittest

import kit


NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


class Device(kit.TestCase):
    def config_of(self, kind):
        self.records(10)
        return self.config({"device.kind": kind, "train.steps": 2})

    def test_without_a_gpu_the_cpu_computes_and_says_why(self):
        result = self.train(2, self.config_of("auto"), env=NO_GPU)
        self.assert_once(result, "no usable GPU: ")
        self.assert_once(result, "computing on the CPU")

    def test_a_gpu_that_is_insisted_on_and_missing_ends_the_job(self):
        for ranks in (0, 2):
            result = self.run_job(ranks, "--config", self.config_of("gpu"), env=NO_GPU)
            self.assert_one_error(result, kit.CONFIG, "no usable GPU: ")

    def test_precisions_that_only_a_gpu_has_are_refused_with_the_reason(self):
        config = self.config_of("cpu")
        for precision in ("tf32", "fp16"):
            result = self.run_job(0, "--config", config, "--train.precision", precision)
            self.assert_one_error(result, kit.CONFIG, f'train.precision = "{precision}" needs a GPU')

    def test_what_only_gpus_have_is_refused_on_the_cpu_by_the_name_of_its_key(self):
        config = self.config_of("cpu")
        for option, value, text in (("--comm.transport", "nccl", 'comm.transport = "nccl" needs GPUs'),
                                    ("--comm.algorithm", "tree", 'comm.algorithm = "tree" is NCCL\'s')):
            for ranks in (1, 2):
                result = self.run_job(ranks, "--config", config, option, value)
                self.assert_one_error(result, kit.CONFIG, text)
        result = self.run_job(2, "--config", self.config_of("gpu"), "--device.deferred", "true")
        self.assert_one_error(result, kit.CONFIG, "device.deferred = true is for the CPU")

    def once_and_late(self, ranks, config, steps):
        """The last checkpoints of a plain run and of a deferred one."""
        directories = [f"{how}_{ranks}" for how in ("once", "late")]
        for directory, deferred in zip(directories, ("false", "true")):
            self.train(ranks, config, {"checkpoint.directory": directory, "device.deferred": deferred})
        once, late = (kit.datasets(self.path(directory, f"step-{steps:08d}.h5")) for directory in directories)
        self.assertEqual(once.keys(), late.keys())
        return once, late

    def assert_late_is_the_same(self, ranks, config, steps):
        once, late = self.once_and_late(ranks, config, steps)
        for key in once.keys() - {"config"}:
            self.assertEqual(once[key].tobytes(), late[key].tobytes(), key)
        self.assertEqual(*(kit.per_step(self.path(f"{how}_{ranks}"), "loss") for how in ("once", "late")))

    def test_a_cpu_that_works_late_like_a_gpu_gets_the_same_bits(self):
        self.records(60)
        config = self.config({"device.kind": "cpu", "train.steps": 9, "train.audit_every": 2, "checkpoint.every_steps": 4,
                              "model.dropout": 0.3, "ema.decay": 0.9})
        for ranks in (1, 2):
            self.assert_late_is_the_same(ranks, config, 9)

    def test_sparse_batches_come_to_a_device_that_works_late(self):
        config = self.config({"device.kind": "cpu", "train.steps": 7, "eval.every_steps": 3, "model.name": "wide_mlp",
                              "model.classes": 2, "model.image_size": None, "model.hidden": [10, 10],
                              "model.vocabulary": 50, "model.max_ids": 8, "data.format": "synthetic",
                              "data.train": [], "comm.gradient_dtype": "bf16"})
        for ranks in (1, 2):
            self.assert_late_is_the_same(ranks, config, 7)

    def test_batch_norm_over_ranks_waits_for_its_sums_on_a_device_that_works_late(self):
        # Convolutions are rewritten otherwise for a device, which rounds otherwise: after more steps than one the
        # rounding shows. A sum that was read too early would be off by far more.
        config = self.config({"device.kind": "cpu", "train.steps": 1, "train.sync_batch_norm": True,
                              "optimizer.name": "sgd", "optimizer.lr": 1e-3}, kit.LARGE)
        once, late = self.once_and_late(2, config, 1)
        compared = 0
        for key in once.keys() - {"config"}:
            if once[key].dtype.kind != "f":
                continue
            compared += 1
            largest = max(abs(once[key]).max(), 1e-3)
            self.assertLess(abs(once[key] - late[key]).max(), 1e-4 * largest, key)
        self.assertGreater(compared, 500)

    def test_the_cpu_does_not_ask_for_a_gpu(self):
        result = self.train(0, self.config_of("cpu"))
        self.assertEqual(result.count("GPU"), 0)

    def test_the_plugin_opens_in_the_program_when_a_driver_has_a_device(self):
        if os.environ["LOCKSTEP_HAVE_CUDA"] != "1":
            self.skipTest("built without the CUDA plugin")
        driver = {"LD_LIBRARY_PATH": os.environ["LOCKSTEP_FAKE_DRIVER"]}
        result = self.run_job(0, "--config", self.config_of("gpu"), env=driver)
        # The runtime's own complaint: so the plugin and all its libraries are there.
        self.assert_one_error(result, kit.CONFIG, "no usable GPU: device 0: ")
        result = self.train(0, self.config_of("auto"), env=driver)
        self.assert_once(result, "no usable GPU: device 0: ")

    def test_a_processor_without_bfloat16_computes_in_float32_and_says_so_once(self):
        # oneDNN, and so the program, takes this processor for one without the instructions.
        config = self.config_of("cpu")
        env = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
        result = self.train(2, config, {"train.precision": "bf16", "checkpoint.directory": "low"}, env=env)
        self.assert_once(result, "has no instructions for bfloat16 (AVX512_BF16 or AMX): computing in float32")
        self.train(2, config, {"checkpoint.directory": "plain"}, env=env)
        low, plain = (kit.datasets(self.path(directory, "step-00000002.h5")) for directory in ("low", "plain"))
        for key in plain.keys() - {"config"}:
            self.assertEqual(low[key].tobytes(), plain[key].tobytes(), key)


@unittest.skipUnless("avx512_bf16" in open("/proc/cpuinfo").read(), "this processor has no instructions for bfloat16")
class Bfloat16(kit.TestCase):
    """Layers in bfloat16 on the CPU: the laws of float32 hold to the bit."""

    KEYS = {"device.kind": "cpu", "train.precision": "bf16", "train.steps": 12, "model.dropout": 0.3, "ema.decay": 0.9,
            "checkpoint.every_steps": 6, "train.audit_every": 3}

    def tensors(self, directory, step=12):
        return {key: value for key, value in kit.datasets(self.path(directory, f"step-{step:08d}.h5")).items()
                if key != "config"}

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for key in one:
            self.assertEqual(one[key].tobytes(), other[key].tobytes(), key)

    def test_a_run_repeats_and_resumes_to_the_bit(self):
        self.records(60)
        config = self.config(self.KEYS)
        for ranks in (1, 2):
            whole, again, halves = (f"{name}_{ranks}" for name in ("whole", "again", "halves"))
            self.train(ranks, config, {"checkpoint.directory": whole})
            self.train(ranks, config, {"checkpoint.directory": again})
            self.train(ranks, config, {"checkpoint.directory": halves, "train.steps": 6})
            self.train(ranks, config, {"checkpoint.directory": halves})
            self.assert_same(self.tensors(whole), self.tensors(again))
            self.assert_same(self.tensors(whole), self.tensors(halves))

    def test_explain_recommends_it_where_convolutions_take_the_time(self):
        line = 'faster: train.precision = "bf16", for which this processor has instructions\n'
        for precision, model, recommended in (("float32", "cifar10_cnn", True), ("bf16", "cifar10_cnn", False),
                                              ("float32", "wide_mlp", False)):
            result = self.run_job(0, "explain", "--model.name", model, "--data.format", "synthetic", "--device.kind", "cpu",
                                  "--train.precision", precision)
            self.assertEqual(result.count(line), int(recommended), (precision, model))

    def test_it_follows_float32_and_stores_float32(self):
        self.records(60)
        config = self.config(self.KEYS)
        self.train(2, config, {"checkpoint.directory": "low"})
        self.train(2, config, {"checkpoint.directory": "full", "train.precision": "float32"})
        low, full = self.tensors("low"), self.tensors("full")
        self.assertEqual({key: value.dtype for key, value in low.items()},
                         {key: value.dtype for key, value in full.items()})
        losses = [kit.per_step(self.path(directory), "loss") for directory in ("low", "full")]
        self.assertNotEqual(*losses)
        for step, loss in losses[1].items():
            self.assertLess(abs(losses[0][step] - loss), 0.05 * loss, f"step {step}")


@unittest.skipUnless("avx512_bf16" in open("/proc/cpuinfo").read(), "this processor has no instructions for bfloat16")
class SlowDigits(kit.TestCase):
    def test_the_digits_recipe_in_bfloat16_reaches_98_per_cent(self):
        run = self.path("run")
        result = self.run_job(2, "--config", "digits", "--device.kind", "cpu", "--train.precision", "bf16",
                              "--checkpoint.directory", run, timeout=1500)
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertEqual(result.count("computing in float32"), 0, str(result))
        averages = [row for row in kit.metrics(run, "eval") if row["weights"] == "ema"]
        self.assertEqual(averages[-1]["examples"], 360)
        self.assertGreaterEqual(averages[-1]["top1"], 0.98)


if __name__ == "__main__":
    kit.main()
