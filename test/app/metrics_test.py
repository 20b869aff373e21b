"""What a run leaves for people to watch: metrics.jsonl and TensorBoard's events, over restarts, and their plot."""

import glob
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

import numpy

import kit

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    event_accumulator = None
try:
    import matplotlib
except ImportError:
    matplotlib = None

WATCHING = os.path.join(os.path.dirname(__file__), "../../docs/watching.md")
PLOT = os.path.join(os.path.dirname(__file__), "../../scripts/plot.py")
ABSENT = "the Python package {} is not installed: scripts/install_python_packages.sh does that"


class Metrics(kit.TestCase):
    def config_with_evaluations(self):
        self.records(48)
        self.records(24, "validation.tfrecord", seed=1)
        return self.config({"data.validation": "validation.tfrecord", "train.steps": 8, "checkpoint.every_steps": 5,
                            "log.histogram_steps": 4})

    def stopped_and_resumed(self):
        """A run that lost what it did after its save at step 5, and then went on to step 12."""
        config = self.config_with_evaluations()
        self.train(2, config)
        os.unlink(self.path("run/step-00000008.h5"))
        self.assert_once(self.train(2, config, {"train.steps": 12}), "resuming at step 5")
        return config

    def events(self):
        if event_accumulator is None:
            self.skipTest(ABSENT.format("tensorboard"))
        everything = {event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0}
        return event_accumulator.EventAccumulator(self.path("run/tensorboard"), everything).Reload()

    def documented_fields(self):
        """{kind: its fields} in docs/watching.md; what is in parentheses are parts and values of fields."""
        with open(WATCHING, encoding="utf-8") as file:
            table = file.read().split("## metrics.jsonl")[1].split("\n## ")[0]
        fields, kind = {}, None
        for first, second in re.findall(r"^\| *(.*?) *\| (.*) \|$", table, re.MULTILINE):
            kind = first.strip("`") or kind
            fields.setdefault(kind, set()).update(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", second)))
        return fields

    def test_every_field_is_documented_and_every_documented_field_is_written(self):
        self.stopped_and_resumed()
        image = kit.png(numpy.full((16, 16, 3), 128, numpy.uint8))
        kit.write(self.path("bad.tfrecord"), kit.tfrecord([(b"no image", 1)] * 3 + [(image, i % 2) for i in range(40)]))
        self.train(1, self.config({"data.train": "bad.tfrecord", "data.validation": "bad.tfrecord", "model.classes": 2,
                                   "data.bad_records": "skip", "checkpoint.directory": "other"}))
        written = {}
        for row in kit.metrics(self.path("run")) + kit.metrics(self.path("other")):
            self.assertLess(abs(row["time"] - time.time()), 600)
            written.setdefault(row["kind"], set()).update(row)
        documented = self.documented_fields()
        self.assertEqual(set(written), {"start", "train", "eval", "checkpoint", "event"})
        for kind, fields in written.items():
            self.assertEqual(fields, documented[kind] | {"kind", "step", "time"}, kind)
        starts = kit.metrics(self.path("run"), "start")
        self.assertEqual([(row["step"], row["ranks"], len(row["hosts"])) for row in starts], [(0, 2, 2), (5, 2, 2)])
        self.assertIn("[optimizer]", starts[0]["configuration"])

    def test_no_step_comes_twice_after_a_resume(self):
        self.stopped_and_resumed()
        self.assertEqual(sorted(kit.per_step(self.path("run"), "loss")), list(range(1, 13)))
        evaluations = [row["step"] for row in kit.metrics(self.path("run"), "eval")]
        self.assertEqual(sorted(set(evaluations)), evaluations)

    def test_no_step_comes_twice_after_a_kill_and_a_torn_line(self):
        config = self.config_with_evaluations()
        job = self.start(2, "--config", config, "--train.steps", "1000000")
        job.wait_for(lambda: any(name >= "step-00000010.h5" for name in kit.checkpoints(self.path("run"))), "a checkpoint")
        job.kill()
        with open(self.path("run/metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"kind":"train","step":1')
        last = int(kit.checkpoints(self.path("run"))[-1][5:13])
        self.train(2, config, {"train.steps": last + 10})
        expected = list(range(1, last + 11))
        self.assertEqual(sorted(kit.per_step(self.path("run"), "loss")), expected)
        self.assertEqual([event.step for event in self.events().Scalars("train/loss")], expected)

    def test_tensorboard_reads_each_step_once_after_a_resume(self):
        self.stopped_and_resumed()
        read = self.events()
        self.assertEqual(len(glob.glob(self.path("run/tensorboard/events.out.tfevents.*"))), 2)
        for tag, field in (("train/loss", "loss"), ("train/learning_rate", "lr"),
                           ("speed/compute_seconds", "compute_seconds")):
            expected = kit.per_step(self.path("run"), field)
            events = read.Scalars(tag)
            self.assertEqual([event.step for event in events], sorted(expected), tag)
            for event in events:
                self.assertAlmostEqual(event.value, expected[event.step], delta=1e-6 * abs(expected[event.step]) + 1e-9)
        evaluations = {row["step"]: row["top1"] for row in kit.metrics(self.path("run"), "eval")}
        self.assertEqual([event.step for event in read.Scalars("evaluation/top1")], sorted(evaluations))

    def test_tensorboard_reads_the_weights_as_they_are_in_the_checkpoint(self):
        self.stopped_and_resumed()
        histograms = self.events().Histograms("weights/fc5.weight")
        self.assertEqual([event.step for event in histograms], [4, 8, 12])
        last = histograms[-1].histogram_value
        weights = kit.datasets(self.path("run/latest"))["model/fc5.weight"].astype(numpy.float64)
        self.assertEqual((last.min, last.max, last.num), (weights.min(), weights.max(), weights.size))
        self.assertAlmostEqual(last.sum, weights.sum(), places=9)
        edges = numpy.array([last.min, *last.bucket_limit])
        counts = numpy.histogram(weights, edges)[0]
        self.assertLessEqual(numpy.abs(counts - last.bucket).sum(), 4)  # a value on an edge may go either way

    def test_a_finished_run_that_is_started_again_is_evaluated_again_but_counted_once(self):
        config = self.stopped_and_resumed()
        before = [row["step"] for row in kit.metrics(self.path("run"), "eval")]
        self.train(1, config, {"train.steps": 12, "train.batch_size": 24})
        self.assertEqual([row["step"] for row in kit.metrics(self.path("run"), "eval")], before)
        self.assertEqual([event.step for event in self.events().Scalars("evaluation/top1")], before)

    def test_events_can_be_turned_off(self):
        self.records(24)
        self.train(1, self.config({"log.tensorboard": False, "train.steps": 2}))
        self.assertFalse(os.path.exists(self.path("run/tensorboard")))

    def test_the_plot_is_written_as_png_and_svg(self):
        if matplotlib is None:
            self.skipTest(ABSENT.format("matplotlib"))
        self.stopped_and_resumed()
        subprocess.run([sys.executable, PLOT, self.path("run"), "--to", self.path("plot")], check=True)
        with open(self.path("plot.png"), "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        self.assertTrue(xml.etree.ElementTree.parse(self.path("plot.svg")).getroot().tag.endswith("svg"))

    def test_losses_of_several_decades_get_a_logarithmic_axis(self):
        if matplotlib is None:
            self.skipTest(ABSENT.format("matplotlib"))
        sys.path.insert(0, os.path.dirname(PLOT))
        self.addCleanup(sys.path.remove, os.path.dirname(PLOT))
        import plot  # pylint: disable=import-outside-toplevel
        self.assertTrue(plot.spans_decades([2.3, 725136.1]))
        self.assertFalse(plot.spans_decades([0.5, 2.3, 7.0]))
        self.assertFalse(plot.spans_decades([0.0, float("nan"), None]))


if __name__ == "__main__":
    kit.main()
