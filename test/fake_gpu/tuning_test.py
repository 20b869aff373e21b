"""Plans of convolutions that the program times on the fake device, keeps and shares among ranks."""

import os

from cases import NORMS, SMALL, FakeGpuCase, kit


class Tuning(FakeGpuCase):
    """FAKE_GPU_PLANS=N gives each plan of cuDNN its own time, by seed and device, and bits."""
    CONFIG = {"model.name": "file", "model.definition": NORMS, "train.steps": 4, "train.precision": "fp16", "model.dropout": None,
              "device.tune": "auto"}
    TIMED = r"tune \| \d+ convolutions of \d+ shapes, \d+ plans timed in [\d.]+ s: [\d.]+ ms with the fastest, [\d.]+ ms with"

    def run_tuned(self, name, order, overrides=None, ranks=0, devices=1, **env):
        config = self.config(self.CONFIG, SMALL)
        return self.run_once(name, config, ranks, order, overrides, devices, {"FAKE_GPU_PLANS": "1", **env})

    def resume(self, directory, **env):
        config = self.config({**self.CONFIG, "checkpoint.directory": directory}, SMALL)
        return self.run_job(0, "--config", config, env={"FAKE_GPU_ORDER": "lazy", **env})

    def plans(self, directory):
        with open(os.path.join(directory, "plans.txt"), encoding="utf-8") as file:
            return file.read()

    def test_the_fastest_plans_are_taken_captured_or_not(self):
        first = self.run_tuned("first", "eager", {"device.graph": "off"})
        self.assertRegex(str(self.printed), self.TIMED)
        captured = self.run_tuned("captured", "random:3", {"device.graph": "on"})
        self.assertEqual(self.plans(first), self.plans(captured))
        self.assert_same_bits(first, captured)
        other = self.run_tuned("other", "lazy", FAKE_GPU_PLANS="2")
        self.assertNotEqual(self.plans(first), self.plans(other))
        untimed = [self.run_tuned(name, "lazy", {key: value, "train.steps": 2})
                   for name, key, value in (("off", "device.tune", "off"), ("same", "train.deterministic", "true"))]
        self.assertFalse(any(os.path.exists(os.path.join(directory, "plans.txt")) for directory in untimed))
        self.assert_same_bits(*untimed)
        self.assertNotEqual(kit.per_step(untimed[0], "loss")[1], kit.per_step(first, "loss")[1])

    def test_plans_are_kept_for_a_run_that_is_resumed(self):
        whole = self.run_tuned("whole", "eager")
        broken = self.run_tuned("broken", "lazy", {"train.steps": 2})
        kept = self.plans(broken)
        for text, why in ((kept.replace("16", "17", 1), "the checksum is wrong"),
                          (kept.replace("plans 1", "plans 2"), 'its first line is not "lockstep plans 1"')):
            kit.write(os.path.join(broken, "plans.txt"), text)
            self.assert_one_error(self.resume(broken, FAKE_GPU_PLANS="2"), kit.CHECKPOINT, "plans.txt: " + why)
        kit.write(os.path.join(broken, "plans.txt"), kept)
        result = self.resume(broken, FAKE_GPU_PLANS="2")  # which would choose others
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertRegex(str(result), r"tune \| (\d+) convolutions of (\d+) shapes, \2 as in .*broken/plans.txt\n")
        self.assertEqual(self.plans(broken), kept)
        self.assert_same_bits(whole, broken)

    def test_a_run_that_starts_anew_leaves_no_plans_of_the_one_before(self):
        run = self.run_tuned("run", "lazy", {"train.steps": 2})
        config = self.config({**self.CONFIG, "checkpoint.directory": run}, SMALL)
        result = self.run_job(0, "--config", config, "--checkpoint.resume", "never", "--checkpoint.overwrite", "true",
                              "--train.deterministic", "true", env={"FAKE_GPU_ORDER": "lazy", "FAKE_GPU_PLANS": "1"})
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertFalse(os.path.exists(os.path.join(run, "plans.txt")))

    def test_a_deterministic_run_takes_kept_plans_only_with_the_checkpoint_that_was_made_with_them(self):
        run = self.run_tuned("run", "lazy", {"train.steps": 2})
        kept = self.plans(run)
        same = {"train.deterministic": "true", "checkpoint.resume": "auto"}
        self.assertRegex(str(self.run_tuned("run", "lazy", same) and self.printed), r"tune \| .* as in .*run/plans.txt\n")
        self.assertEqual(self.plans(run), kept)
        for name in (*kit.checkpoints(run), "latest"):
            os.remove(os.path.join(run, name))
        self.run_tuned("run", "lazy", same)
        self.assertEqual(self.printed.count("tune |"), 0, str(self.printed))
        self.assertFalse(os.path.exists(os.path.join(run, "plans.txt")))
        self.assert_same_bits(run, self.run_tuned("new", "random:3", same))

    def test_plans_of_another_device_are_timed_again(self):
        run = self.run_tuned("run", "lazy", {"train.steps": 2})
        result = self.resume(run, FAKE_GPU_PLANS="2", FAKE_GPU_OTHER="0")
        self.assertEqual(result.code, kit.OK, str(result))
        self.assertRegex(str(result), r"plans.txt is for fake device \(compute capability 9.0\), cuDNN 9[.\d]+, this is another fake "
                                      r"device \(compute capability 9.0\), cuDNN 9[.\d]+: plans are timed again")
        self.assertRegex(str(result), self.TIMED)
        self.assertIn("another fake device", self.plans(run))

    def test_all_ranks_take_the_plans_of_rank_0(self):
        nccl = self.run_tuned("nccl", "lazy", ranks=2, devices=2)  # the second device would choose others
        self.assertEqual(self.printed.count("plans timed in"), 1)
        self.assert_same_bits(nccl, self.run_tuned("mpi", "random:7", {"device.share": "true"}, ranks=2))

    def test_a_rank_on_another_device_takes_the_first_plans(self):
        self.run_tuned("other", "lazy", {"train.steps": 2}, ranks=2, devices=2, FAKE_GPU_OTHER="1")
        self.assertRegex(str(self.printed), r"warning: rank 1@\w+: this is another fake device \(.*, but rank 0 has fake device \(")

    def test_a_plan_that_does_not_run_is_left_out(self):
        self.run_tuned("some", "lazy", {"train.steps": 2}, FAKE_GPU_PLANS="1:3")
        self.assertRegex(str(self.printed), r"tune \| .* plans timed in .*, \d+ plans? did not run")

    def test_explain_says_what_would_be_timed(self):
        config = self.config(self.CONFIG, SMALL)
        said = r"tune \| \d+ convolutions of \d+ shapes in a step on this GPU: a run times the first plans of each shape"
        self.assertRegex(str(self.run_job(0, "explain", "--config", config)), said)
        self.assertNotRegex(str(self.run_job(0, "explain", "--config", config, "--device.tune", "off")), said)


if __name__ == "__main__":
    kit.main()
