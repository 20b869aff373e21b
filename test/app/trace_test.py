"""The trace of a few steps: valid, nested, and the parts of a step make up the step."""

import collections
import json

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


if __name__ == "__main__":
    kit.main()
