"""The trace and the profile of a few steps: valid, nested, and the parts of a step make up the step."""

import collections
import json
import os

import kit

PARTS = {"data", "compute", "reduce", "save"}


class Trace(kit.TestCase):
    def traced(self, ranks, changes=None):
        self.records(48, side=32)
        config = self.config({"train.steps": 8, "train.batch_size": 24, "model.image_size": 32, "log.trace_steps": 3,
                              "checkpoint.every_steps": 1, **(changes or {})})
        self.assert_once(self.train(ranks, config), f"trace of 3 steps: {self.path('run/trace.json')}")
        with open(self.path("run/trace.json"), encoding="utf-8") as file:
            return json.load(file)

    def check_schema(self, trace):
        self.assertEqual(set(trace), {"displayTimeUnit", "traceEvents"})
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], ("X", "M"))
            self.assertIsInstance(event["pid"], int)
            self.assertIsInstance(event["tid"], int)
            self.assertIsInstance(event["name"], str)
            if event["ph"] == "X":
                for time in (event["ts"], event["dur"]):
                    self.assertIsInstance(time, int)  # fractions would be cut off, and spans no longer nest
                    self.assertGreaterEqual(time, 0)
            else:
                self.assertIn(event["name"], ("process_name", "thread_name"))
                self.assertIsInstance(event["args"]["name"], str)

    def spans(self, trace):
        """{(rank, thread): spans in the order in which they begin, which is that of the file}."""
        rows = collections.defaultdict(list)
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                rows[event["pid"], event["tid"]].append(event)
        for row in rows.values():
            self.assertEqual(row, sorted(row, key=lambda event: event["ts"]))
        return rows

    def check_nesting(self, row):
        """Each span lies within the one that is open when it begins."""
        ends = []
        for event in row:
            end = event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            if ends:
                self.assertLessEqual(end, ends[-1], event)
            ends.append(end)

    def test_spans_nest_and_parts_make_up_the_step_on_every_rank(self):
        trace = self.traced(2)
        self.check_schema(trace)
        rows = self.spans(trace)
        for row in rows.values():
            self.check_nesting(row)
        names = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"]
                 if event["name"] == "thread_name"}
        self.assertEqual(set(names), set(rows))
        threads = {rank: {names[key] for key in rows if key[0] == rank} for rank in (0, 1)}
        self.assertEqual(threads[0], {"trainer", "loader", "reduction", "writer"})
        self.assertEqual(threads[1], {"trainer", "loader", "reduction"})
        for rank in (0, 1):
            main = next(row for key, row in rows.items() if key[0] == rank and names[key] == "trainer")
            steps = [event for event in main if event["name"].startswith("step ")]
            self.assertEqual([event["name"] for event in steps], ["step 3", "step 4", "step 5"])
            for step in steps:
                end = step["ts"] + step["dur"]
                inside = [event for event in main if step["ts"] <= event["ts"] < end and event is not step]
                parts = [event for event in inside if event["name"] in PARTS]
                self.assertAlmostEqual(sum(part["dur"] for part in parts) / step["dur"], 1, delta=0.02)
                self.assertLessEqual({"data", "compute", "reduce"}, {part["name"] for part in parts})
                kernels = [event["name"] for event in inside if event["name"] not in PARTS]
                self.assertTrue(any(name.startswith("conv1") for name in kernels), kernels)
                self.assertGreater(len(kernels), 10)

    def test_a_run_with_fewer_steps_writes_those_it_has(self):
        self.records(24)
        result = self.train(1, self.config({"train.steps": 4, "log.trace_steps": 100}))
        self.assert_once(result, "trace of 2 steps")
        with open(self.path("run/trace.json"), encoding="utf-8") as file:
            self.check_schema(json.load(file))

    def test_a_trace_that_cannot_be_written_stops_nothing(self):
        self.records(24)
        kit.write(self.path("run/trace.json/in the way"), b"")
        result = self.train(1, self.config({"train.steps": 8, "log.trace_steps": 2}))
        self.assertTrue(any("the trace is not written: " in line for line in result.warnings()), str(result))


class Profile(kit.TestCase):
    def profile(self, *names):
        with open(self.path(*names), encoding="utf-8") as file:
            return json.load(file)

    def row(self, profile, name):
        rows = [row for row in profile["rows"] if row["name"] == name]
        self.assertEqual(len(rows), 1, name)
        return rows[0]

    def check_sums(self, profile):
        """The parts and the rows each make up the step."""
        for rows in (profile["parts"], profile["rows"]):
            self.assertAlmostEqual(sum(row["ms"] for row in rows) / profile["step_ms"], 1, delta=1e-9)
            self.assertGreaterEqual(min(row["ms"] for row in rows), 0)

    def test_the_profile_of_a_run_accounts_for_its_traced_steps(self):
        self.records(48, side=32)
        result = self.train(1, self.config({"train.steps": 8, "train.batch_size": 24, "model.image_size": 32,
                                            "log.trace_steps": 4}))
        self.assertRegex(result.output, r"a step takes \d+\.\d{3} ms on rank 0 \(mean of 4 steps\): forward ")
        profile = self.profile("run/profile.json")
        self.check_sums(profile)
        steps = [event for event in self.profile("run/trace.json")["traceEvents"]
                 if event["name"].startswith("step ") and event["ph"] == "X"]
        between = next(part["ms"] for part in profile["parts"] if part["part"] == "between steps")
        traced = sum(step["dur"] for step in steps) / 1e3 / len(steps)
        self.assertAlmostEqual((profile["step_ms"] - between) / traced, 1, delta=0.2)  # a pause may fall between two readings of the clock

    def test_profile_runs_steps_prints_where_their_time_went_and_keeps_nothing(self):
        self.records(48)
        config = self.config({"train.batch_size": 6, "train.accumulate": 2})
        result = self.run_job(2, "profile", "--config", config, "--steps", "3", "--rows", "4", "--to", "steps.json")
        self.assertEqual(result.code, kit.OK, result)
        self.assertFalse(os.path.exists(self.path("run")))
        profile = self.profile("steps.json")
        self.check_sums(profile)
        self.assertEqual(profile["steps"], 3)
        table = result.output[result.output.index("a step takes"):].splitlines()
        self.assertRegex(table[1], r"^this machine reaches [\d.]+ GFLOP/s in a large product and [\d.]+ GB/s in a large sum$")
        self.assertEqual(len(table), 3 + 4 + 1, result)
        self.assertTrue(table[-1].endswith(f"{len(profile['rows']) - 4} more rows"), result)
        self.assertIn(profile["rows"][0]["name"], table[3])
        # conv1: 2 micro-batches of 6 images of 16 x 16 pixels, 64 filters of 5 x 5 x 3.
        forward = 2 * 2 * 6 * 16 * 16 * 64 * 5 * 5 * 3 * 1e-9
        conv1 = self.row(profile, "conv1")
        self.assertEqual((conv1["part"], conv1["operation"]), ("forward", "Conv2d"))
        self.assertAlmostEqual(conv1["gflop"], forward, places=9)
        self.assertAlmostEqual(self.row(profile, "conv1.grad_weights")["gflop"], forward, places=9)
        rate = conv1["gflop"] / conv1["ms"] * 1e3 / profile["peak"]["gflop_per_second"]
        self.assertAlmostEqual(conv1["of_peak"] / rate, 1, delta=1e-6)
        # pool1 reads 2 x 6 images of 64 channels in float32 and writes a quarter, beside what it saves.
        read = 2 * 6 * 64 * 16 * 16 * 4 * 1e-9
        self.assertGreaterEqual(self.row(profile, "pool1")["gbytes"], 1.25 * read)

    def test_neither_names_of_layers_nor_the_log_level_nor_a_bad_loss_spoil_a_profile(self):
        self.records(24)
        kit.write(self.path("net.toml"), b"""layer = [
          { op = "conv", name = "reduce", channels = 8 }, { op = "relu", name = "data" },
          { op = "global_avg_pool", name = "backward" }, { op = "flatten", name = "update" },
          { op = "linear", name = "save", outputs = "$classes" }, { op = "loss", name = "loss" } ]""")
        config = self.config({"model.name": "file", "model.file": "net.toml", "log.level": "error",
                              "optimizer.lr": 1e30, "train.not_finite": "rollback"})
        result = self.run_job(1, "profile", "--config", config, "--steps", "2", "--to", "steps.json")
        self.assertEqual(result.code, kit.OK, result)
        self.assertIn("a step takes", result.output)
        rows = self.profile("steps.json")["rows"]
        for name in ("reduce", "save"):
            self.assertIn((name, "forward"), [(row["name"], row["part"]) for row in rows])

    def test_a_profile_that_cannot_be_made_says_why(self):
        self.records(24)
        for arguments, text in ((["--steps", "0"], "--steps"),
                                (["--steps", "1", "--to", "none/steps.json"], "--to none/steps.json: there is no directory none")):
            result = self.run_job(1, "profile", "--config", self.config(), *arguments)
            self.assertEqual(result.code, kit.CONFIG, result)
            self.assertIn(text, result.output)
            self.assertNotIn("scanning", result.output, "it says so at once")


if __name__ == "__main__":
    kit.main()
