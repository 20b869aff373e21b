"""What gpu_lab prints without a GPU: usage: gpu_lab_test.py GPU_LAB DEVICE_FILE. The program plans for a described device."""

import subprocess
import sys
import unittest

GPU_LAB, DEVICE = sys.argv[1:3]


def run(*words):
    return subprocess.run([GPU_LAB, *words], capture_output=True, text=True, timeout=250, check=False)


def table(text):
    header, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(header, line)) for line in lines]


class GpuLab(unittest.TestCase):
    def test_each_convolution_has_one_engine_that_is_taken_and_allowed(self):
        for precision in ("float32", "tf32", "bf16", "fp16"):
            done = run("engines", "cifar10_cnn", precision, "32", DEVICE)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = table(done.stdout)
            problems = {row["problem"] for row in rows}
            self.assertEqual(len(problems), 5)  # two layers, three problems each, less the first gradient by input
            taken = [row for row in rows if row["taken"] == "taken"]
            self.assertEqual({row["problem"] for row in taken}, problems, precision)
            self.assertEqual(len(taken), len(problems), precision)
            # Without times the first is taken that is allowed, in cuDNN's order.
            first = {row["problem"]: row["engine"] for row in reversed(rows) if row["allowed"] == "allowed"}
            self.assertEqual({row["problem"]: row["engine"] for row in taken}, first, precision)
            self.assertEqual({row["ms"] for row in rows}, {"-1.0000"})  # nothing was run
            sums = done.stderr.splitlines()[-1].split("\t")
            self.assertEqual(sums, ["engines", "5", str(len(rows)), *["-1.0000"] * 4])  # so no sum is known
            if precision == "float32":
                self.assertIn("barred", {row["allowed"] for row in rows})  # tensor cores
            # Without tensor cores: in 16 bits the backend takes no such engine where there are others.
            plain = {row["allowed"] for row in rows if row["engine"] == "eng0"}
            self.assertEqual(plain, {"barred" if precision in ("bf16", "fp16") else "allowed"}, precision)

    def test_fused_convolutions_have_engines_in_fp16_but_for_images_of_four_channels_and_none_in_bf16(self):
        for precision, fused in (("fp16", True), ("bf16", False)):
            done = run("fusions", "cifar10_cnn", precision, "32", DEVICE)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = table(done.stdout)
            self.assertEqual(len(rows), 7)  # two layers, four fusions, less the first gradient by input
            for row in rows:
                has_engines = fused and "x [32,4," not in row["problem"]
                self.assertEqual(int(row["engines"]) > 0, has_engines, row)
                self.assertEqual(row["engine"] == "none", not has_engines, row)
            self.assertEqual({row["ms"] for row in rows}, {"-1.0000"})  # nothing was run
            sums = [line.split("\t") for line in done.stderr.splitlines() if line.startswith("fusion\t")]
            self.assertEqual([line[2:4] for line in sums], [["2", "1" if fused else "0"]] * 3 + [["1", "1" if fused else "0"]])

    def test_when_its_time_is_over_it_says_how_many_convolutions_are_left_out(self):
        for command, count in (("engines", 5), ("fusions", 7)):
            done = run(command, "cifar10_cnn", "fp16", "32", DEVICE, "--seconds", "0")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 1)  # the header
            self.assertEqual(done.stderr.splitlines()[-1], f"left out\t{count}")
        refused = run("engines", "cifar10_cnn", "fp16", "32", DEVICE, "--seconds", "few")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--seconds few: a number is needed", refused.stderr)

    def test_convolutions_that_cost_most_come_first(self):
        rows = table(run("engines", "cifar10_cnn", "bf16", "32", DEVICE).stdout)
        self.assertIn("weights [64,64,5,5]", rows[0]["problem"])
        self.assertIn("weights [64,4,5,5]", rows[-1]["problem"])

    def test_layers_have_times_and_floors_and_their_sum_is_that_of_the_kinds(self):
        done = run("layers", "cifar10_cnn", "float32", "4", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = table(done.stdout)
        self.assertIn("conv2", {row["layer"] for row in rows})
        convolutions = [row for row in rows if row["operation"].startswith("Conv2d")]
        self.assertEqual(len(convolutions), 5)  # two layers, three each, less the first gradient by input
        for row in convolutions:  # a CPU takes longer for them than the least that a GPU could
            self.assertGreater(float(row["ms"]), float(row["floor_ms"]), row)
            self.assertGreater(float(row["floor_ms"]), 0, row)
        sums = [line.split("\t")[1:] for line in done.stderr.splitlines() if line.startswith("sum\t")]
        self.assertEqual(sums[-1][0], "all")
        for column, key in ((2, "ms"), (3, "floor_ms")):
            self.assertAlmostEqual(sum(float(row[key]) for row in rows), float(sums[-1][column]), delta=0.01)
            self.assertAlmostEqual(sum(float(one[column]) for one in sums[:-1]), float(sums[-1][column]), delta=0.01)

    def test_without_a_driver_one_line_says_why(self):
        done = run("describe")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^error: [^\n]+\n$")

    def test_other_words_are_refused(self):
        self.assertEqual(run("layers").returncode, 2)
        refused = run("layers", "cifar10_cnn", "bf15", "4", "cpu")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("bf15 is none of", refused.stderr)
        self.assertIn("a batch of 0: ", run("layers", "cifar10_cnn", "bf16", "0").stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
