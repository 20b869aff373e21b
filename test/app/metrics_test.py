"""What a run leaves for people to watch: metrics.jsonl and TensorBoard's events, over restarts, and their plot."""

import glob
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import numpy

import kit

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    event_accumulator = None
try:
    from prometheus_client import parser as prometheus_parser
except ImportError:
    prometheus_parser = None
try:
    import matplotlib
except ImportError:
    matplotlib = None

WATCHING = os.path.join(os.path.dirname(__file__), "../../docs/watching.md")
TO_MLFLOW = os.path.join(os.path.dirname(__file__), "../../scripts/to_mlflow.py")
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

    def events(self, part="train"):
        if event_accumulator is None:
            self.skipTest(ABSENT.format("tensorboard"))
        everything = {event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0, event_accumulator.TENSORS: 0}
        return event_accumulator.EventAccumulator(self.path("run/tensorboard", part), everything).Reload()

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
        self.assertEqual([event.step for event in self.events().Scalars("loss")], expected)

    def test_tensorboard_reads_each_step_once_after_a_resume(self):
        self.stopped_and_resumed()
        read = self.events()
        self.assertEqual(len(glob.glob(self.path("run/tensorboard/train/events.out.tfevents.*"))), 2)
        for tag, field in (("loss", "loss"), ("learning_rate", "lr"),
                           ("speed/compute_seconds", "compute_seconds")):
            expected = kit.per_step(self.path("run"), field)
            events = read.Scalars(tag)
            self.assertEqual([event.step for event in events], sorted(expected), tag)
            for event in events:
                self.assertAlmostEqual(event.value, expected[event.step], delta=1e-6 * abs(expected[event.step]) + 1e-9)
        evaluations = {row["step"]: row["top1"] for row in kit.metrics(self.path("run"), "eval")}
        self.assertEqual([event.step for event in self.events("validation").Scalars("top1")], sorted(evaluations))

    def test_tensorboard_overlays_training_and_validation(self):
        self.records(48)
        self.records(24, "validation.tfrecord", seed=1)
        self.train(2, self.config({"data.validation": "validation.tfrecord", "train.steps": 4, "ema.decay": 0.9}))
        for part in ("train", "validation", "validation_ema"):
            self.assertIn("loss", self.events(part).Tags()["scalars"], part)
        for row in kit.metrics(self.path("run"), "eval"):
            events = self.events("validation" if row["weights"] == "raw" else "validation_ema")
            for tag in ("loss", "top1", "top5"):
                self.assertAlmostEqual({event.step: event.value for event in events.Scalars(tag)}[row["step"]], row[tag], 5)

    def test_tensorboard_shows_configuration_and_hyperparameters(self):
        self.records(24)
        self.train(2, self.config({"train.steps": 2, "optimizer.lr": 0.02}))
        read = self.events("")
        text = read.Tensors("configuration")[0].tensor_proto.string_val[0].decode()
        self.assertEqual(text, f"```toml\n{kit.metrics(self.path('run'), 'start')[0]['configuration']}```\n")
        self.assertEqual(read.SummaryMetadata("configuration").plugin_data.plugin_name, "text")
        from tensorboard.plugins.hparams import metadata  # pylint: disable=import-outside-toplevel
        content = {tag: read.SummaryMetadata(f"_hparams_/session_{tag}_info").plugin_data.content for tag in ("start", "end")}
        start = metadata.parse_session_start_info_plugin_data(content["start"])
        self.assertEqual(start.hparams["optimizer.lr"].number_value, 0.02)
        self.assertEqual(start.hparams["optimizer.name"].string_value, "sgd")
        self.assertEqual((start.hparams["ranks"].number_value, start.hparams["data.shuffle"].bool_value), (2, True))
        self.assertNotIn("data.train", start.hparams)
        self.assertLess(abs(start.start_time_secs - time.time()), 600)
        end = metadata.parse_session_end_info_plugin_data(content["end"])
        self.assertEqual(type(end).DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number[end.status].name,
                         "STATUS_SUCCESS")

    def test_prometheus_reads_the_file_of_a_run(self):
        self.records(48)
        self.records(24, "validation.tfrecord", seed=1)
        page = self.path("node/cifar10_cnn.prom")
        os.mkdir(self.path("node"))
        config = self.config({"data.validation": "validation.tfrecord", "log.prometheus_file": "node/{model}.prom"})
        job = self.start(2, "--config", config, "--train.steps", "1000000")
        seen = set()
        job.wait_for(lambda: seen.add(os.path.exists(page) and self.samples(page).get("lockstep_step")) or len(seen) > 20,
                     "values that change")  # every reading is a whole page
        os.kill(job.ranks()[0], signal.SIGTERM)
        self.assertEqual(job.wait().code, kit.STOPPED)
        samples = self.samples(page)
        last = kit.metrics(self.path("run"), "train")[-1]
        saved = kit.metrics(self.path("run"), "checkpoint")[-1]
        self.assertEqual(samples["lockstep_running"], 0)
        self.assertEqual(samples["lockstep_step"], last["step"])
        self.assertEqual(samples["lockstep_checkpoint_step"], saved["step"])
        self.assertAlmostEqual(samples["lockstep_loss"], last["loss"], 9)
        self.assertAlmostEqual(samples['lockstep_step_part_seconds{part="compute"}'], last["compute_seconds"], 9)
        self.assertEqual(os.listdir(self.path("node")), ["cifar10_cnn.prom"])

    def samples(self, path):
        """{name and labels but for the run's: value} of a file in the text format 0.0.4, read strictly."""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.endswith("\n"))
        found, typed = {}, None
        for line in text.splitlines():
            if head := re.fullmatch(r"# (HELP|TYPE) (lockstep_\w+) (.+)", line):
                if head[1] == "TYPE":
                    self.assertEqual((head[2], head[3] in ("gauge", "counter")), (typed, True), line)
                typed = head[2]
                continue
            label = r'\w+="(?:[^"\\]|\\[\\"n])*"'
            sample = re.fullmatch(rf'(\w+){{run="{re.escape(self.path("run"))}"((?:,{label})*)}} (NaN|[+-]Inf|[-+.\de]+)', line)
            self.assertIsNotNone(sample, line)
            self.assertEqual(sample[1], typed, line)
            name = sample[1] + (f"{{{sample[2][1:]}}}" if sample[2] else "")
            self.assertNotIn(name, found, line)
            found[name] = float(sample[3])
        if prometheus_parser:
            parsed = list(prometheus_parser.text_string_to_metric_families(text))
            self.assertEqual(sum(len(family.samples) for family in parsed), len(found))
        return found

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
        self.assertEqual([event.step for event in self.events("validation").Scalars("top1")], before)

    def test_events_can_be_turned_off(self):
        self.records(24)
        self.train(1, self.config({"log.tensorboard": False, "train.steps": 2}))
        self.assertFalse(os.path.exists(self.path("run/tensorboard")))

    def test_mlflow_gets_every_number_and_setting_of_a_run(self):
        self.stopped_and_resumed()
        subprocess.run([sys.executable, TO_MLFLOW, "--to", self.path("mlruns"), self.path("run")], check=True,
                       stdout=subprocess.DEVNULL)
        place, = glob.glob(self.path("mlruns/*/*/"))
        with open(os.path.join(place, "params/optimizer.lr"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "0.01")
        with open(os.path.join(place, "metrics/train/loss"), encoding="utf-8") as file:
            lines = [line.split() for line in file]
        self.assertEqual({int(step): float(value) for _, value, step in lines}, kit.per_step(self.path("run"), "loss"))
        with open(os.path.join(place, "meta.yaml"), encoding="utf-8") as file:
            meta = dict(line.strip().split(": ", 1) for line in file)
        self.assertEqual((meta["status"], meta["run_name"]), ("3", '"run"'))
        self.assertEqual(meta["start_time"], str(int(1000 * kit.metrics(self.path("run"))[0]["time"])))
        with open(self.path("run/metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"kind": "start", "step": 9}\n')
        subprocess.run([sys.executable, TO_MLFLOW, "--to", self.path("running"), self.path("run")], check=True,
                       stdout=subprocess.DEVNULL)
        with open(*glob.glob(self.path("running/*/*/meta.yaml")), encoding="utf-8") as file:
            self.assertIn("\nstatus: 1\n", file.read(), "it has been started again")

    def test_mlflows_server_gets_every_number_and_setting_of_a_run(self):
        self.stopped_and_resumed()
        calls = []

        class Tracking(http.server.BaseHTTPRequestHandler):
            def answer(self, values, code=200):
                body = json.dumps(values).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer({"error_code": "RESOURCE_DOES_NOT_EXIST"}, 404)

            def do_POST(self):
                values = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                calls.append((self.path.rsplit("mlflow/", 1)[1], values))
                self.answer({"experiment_id": "5", "run": {"info": {"run_id": "7"}}})

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Tracking)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            subprocess.run([sys.executable, TO_MLFLOW, "--to", f"http://127.0.0.1:{server.server_port}", self.path("run")],
                           check=True, stdout=subprocess.DEVNULL, timeout=60)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        self.assertEqual([calls[0][0], calls[1][0], calls[-1][0]], ["experiments/create", "runs/create", "runs/update"])
        batches = [values for name, values in calls if name == "runs/log-batch"]
        self.assertLessEqual(max(len(batch.get("params", [])) for batch in batches), 100)
        settings = {one["key"]: one["value"] for batch in batches for one in batch.get("params", [])}
        self.assertEqual((settings["optimizer.name"], settings["optimizer.lr"]), ("sgd", "0.01"))
        numbers = [one for batch in batches for one in batch.get("metrics", []) if one["key"] == "validation/top1"]
        rows = kit.metrics(self.path("run"), "eval")
        self.assertEqual([(one["step"], one["value"]) for one in numbers], [(row["step"], row["top1"]) for row in rows])

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
