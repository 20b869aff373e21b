#!/usr/bin/env python3
"""The work of gpu_acceptance.sh (see there). Standard library only."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOTAL_SECONDS = 8 * 60
EVALUATION_TOLERANCE = 1e-3  # of the loss, between a CPU and a GPU in float32


def output_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Programs:
    """Where the programs are, and what they need to start."""

    def __init__(self, arguments):
        bundle = pathlib.Path(arguments.bundle or ROOT / "build/bundle")
        build = pathlib.Path(arguments.build or ROOT / "build/release")
        self.bundled = not arguments.build and (bundle / "trainer").exists()
        if not self.bundled and not (build / "trainer").exists():
            subprocess.run([ROOT / "scripts/build.sh"], cwd=ROOT, check=True)
        self.folder = bundle if self.bundled else build
        self.trainer = [str(self.folder / "trainer")]
        self.mpirun = [str(bundle / "mpirun")] if self.bundled else ["mpirun"]
        self.environment = dict(os.environ, LOCKSTEP_GOLDEN_DIR=str(ROOT / "test/golden"), OMPI_ALLOW_RUN_AS_ROOT="1",
                                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                                OMPI_MCA_hwloc_base_binding_policy="none")

    def test(self, layer, name):
        path = self.folder / ("bin" if self.bundled else f"test/{layer}") / name
        return str(path) if path.exists() else None


class PeakMemory:
    """The most memory in use on the GPU while a block runs, asked ten times a second."""

    def __enter__(self):
        self.peak_bytes, self.stop = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.wait(0.1):
            used = output_of(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
            if used:
                self.peak_bytes = max(self.peak_bytes, int(used.splitlines()[0]) << 20)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class Acceptance:
    def __init__(self, arguments, scratch):
        self.kind = arguments.device_kind
        self.programs = Programs(arguments)
        self.scratch = scratch
        self.begin = time.monotonic()
        self.checks, self.rates = [], []
        self.options = {"--config": "digits", "--device.kind": self.kind, "--ema.decay": 0}
        if self.kind == "cpu":
            self.options["--train.batch_size"] = 2

    def left(self):
        return TOTAL_SECONDS - (time.monotonic() - self.begin)

    def run(self, command, seconds):
        """Exit code (None: out of time) and output."""
        process = subprocess.Popen(command, env=self.programs.environment, cwd=self.scratch, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=max(1, min(seconds, self.left())))
            return process.returncode, text
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0] or ""

    def check(self, name, work):
        """One check: `work` returns a remark, or raises AssertionError."""
        begin = time.monotonic()
        try:
            remark, verdict = work(), "passed"
            if remark.startswith("skipped"):
                verdict = "skipped"
        except AssertionError as error:
            remark, verdict = str(error), "FAILED"
        seconds = time.monotonic() - begin
        self.checks.append({"name": name, "verdict": verdict, "seconds": round(seconds, 1), "remark": remark})
        print(f"{verdict:8} {name} ({seconds:.0f} s): {remark.splitlines()[0] if remark else ''}", flush=True)

    def command(self, folder, options):
        """`options` win: a key may be given once."""
        pairs = {**self.options, "--checkpoint.directory": self.scratch / folder, **dict(zip(options[::2], options[1::2]))}
        return self.programs.trainer + [str(part) for pair in pairs.items() for part in pair]

    def train(self, folder, *options, ranks=1, code=0, seconds=90):
        command = self.command(folder, options)
        if ranks > 1:
            command = self.programs.mpirun + ["-np", str(ranks)] + command
        actual, text = self.run(command, seconds)
        assert actual == code, f"exit code {actual}, not {code}: {text[-2000:]}"
        return text

    def rows(self, folder, kind):
        lines = (self.scratch / folder / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == kind]

    # ---- the checks

    def unit_tests(self, layer, name, tests):
        program = self.programs.test(layer, name)
        if not program:
            return f"skipped: {name} is not in {self.programs.folder}"
        code, text = self.run([program, tests], 150)
        assert code == 0, text[-3000:]
        return re.sub(r"\x1b\[[0-9;]*m", "", text).strip().splitlines()[-1]

    def one_rank(self):
        transport = "nccl" if self.kind == "gpu" else "mpi"
        self.train("one", "--train.steps", 40, "--comm.transport", transport, "--log.every_steps", 1)
        losses = [row["loss"] for row in self.rows("one", "train")]
        assert losses[-1] < losses[0], f"the loss went from {losses[0]} to {losses[-1]}"
        return f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps"

    def captured_or_not(self):
        for graph in ("off", "auto"):
            self.train(f"graph_{graph}", "--train.steps", 20, "--device.graph", graph, "--log.every_steps", 1)
        off, auto = ([row["loss"] for row in self.rows(f"graph_{graph}", "train")] for graph in ("off", "auto"))
        worst = max(abs(a - b) for a, b in zip(off, auto))
        assert worst < 1e-3, f"losses differ by {worst}"
        return f"losses of 20 steps differ by {worst:.1e} at most"

    def two_ranks(self):
        if self.kind == "gpu":
            text = self.train("refused", "--train.steps", 2, ranks=2, code=2)
            assert "device.share" in text, text
        self.train("two", "--train.steps", 20, "--train.audit_every", 5, "--device.share", "true", ranks=2)
        return "two ranks stay equal; without device.share they are refused"

    def kill_and_resume(self):
        options = ["--train.steps", 60, "--checkpoint.every_steps", 5, "--log.every_steps", 1]
        self.train("whole", *options)
        process = subprocess.Popen(self.command("killed", options), env=self.programs.environment, cwd=self.scratch,
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in process.stdout:
            if re.search(r": step [23]\d,", line):
                process.kill()
                break
        process.wait()
        text = self.train("killed", *options)
        resumed = re.search(r"resuming at step (\d+)", text)
        assert resumed, text[-2000:]
        ends = [self.rows(folder, "train")[-1]["loss"] for folder in ("whole", "killed")]
        assert abs(ends[0] - ends[1]) < 0.05 * max(ends), f"losses at the end: {ends}"
        return f"resumed at step {resumed.group(1)}; losses at the end {ends[0]:.5f} and {ends[1]:.5f}"

    def exchange(self):
        steps = "--train.steps"
        kinds = ("cpu", self.kind, "cpu")
        for end, kind in zip((10, 20, 30), kinds):
            self.train("exchange", steps, end, "--device.kind", kind)
        losses = {}
        for kind in set(kinds):
            command = self.programs.trainer + ["evaluate", "--config", "digits", "--checkpoint", "latest",
                                               "--checkpoint.directory", str(self.scratch / "exchange"),
                                               "--ema.decay", "0", "--device.kind", kind]
            code, text = self.run(command, 60)
            assert code == 0, text[-2000:]
            losses[kind] = float(re.search(r"loss ([0-9.]+)", text).group(1))
        spread = max(losses.values()) - min(losses.values())
        assert spread <= EVALUATION_TOLERANCE, f"evaluation losses: {losses}"
        return f"trained on {', '.join(kinds)} in turn; evaluation losses {losses}"

    def sanitizer(self):
        program = self.programs.test("backend", "backend_test")
        tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
        if not program or not tool or self.kind != "gpu":
            return "skipped: no compute-sanitizer, no op tests or no GPU"
        code, text = self.run([tool, "--error-exitcode", "9", program, "[gpu]"], 100)
        if code is None:
            return "skipped: not done within its time"
        assert code == 0, text[-3000:]
        return text.strip().splitlines()[-1]

    # ---- throughput

    def measure(self, batch, precision):
        folder = f"rate_{precision}_{batch}"
        command = self.programs.trainer + [
            "--config", "inception_v3_imagenet", "--data.format", "synthetic", "--data.validation", "",
            "--device.kind", self.kind, "--train.precision", precision, "--train.batch_size", str(batch),
            "--train.steps", "40", "--ema.decay", "0", "--log.every_steps", "10", "--checkpoint.every_seconds", "0",
            "--checkpoint.directory", str(self.scratch / folder)]
        with PeakMemory() as memory:
            code, text = self.run(command, 60)
        row = {"who": "Lockstep", "precision": precision, "batch": batch}
        if code != 0:
            row["error"] = "out of time" if code is None else text.strip().splitlines()[-1]
        else:
            rows = self.rows(folder, "train")
            row["examples_per_second"] = rows[-1]["examples_per_second"]
            row["peak_bytes"] = memory.peak_bytes
        self.rates.append(row)
        print(row, flush=True)

    def measure_pytorch(self, cases):
        script = str(ROOT / "scripts/bench/pytorch_gpu.py")
        if self.left() < 30 or self.run([sys.executable, "-c", "import torch, torchvision"], 60)[0] != 0:
            return
        _, text = self.run([sys.executable, script, *cases], 150)
        self.rates += [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def throughput(self):
        for precision in ("bf16", "fp16"):
            for batch in (256, 128, 32):
                if self.left() > 40:
                    self.measure(batch, precision)
        order = [(b, p, h) for h in ("eager", "compiled") for b in (256, 128, 32) for p in ("bf16", "fp16")]
        self.measure_pytorch([f"{b}:{p}:{h}" for b, p, h in order])

    def run_all(self):
        self.check("op tests against the reference backend", lambda: self.unit_tests("backend", "backend_test", "*"))
        self.check("golden values", lambda: self.unit_tests("models", "golden_test", "*on a GPU*"))
        self.check("one rank" + (" over NCCL" if self.kind == "gpu" else ""), self.one_rank)
        self.check("the step captured and not", self.captured_or_not)
        self.check("two ranks on one device over MPI", self.two_ranks)
        self.check("kill and resume", self.kill_and_resume)
        self.check("checkpoints between CPU and device", self.exchange)
        self.check("compute-sanitizer over the op tests", self.sanitizer)
        if self.kind == "gpu":
            self.throughput()


def facts():
    gpu = output_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    nvcc = output_of(["nvcc", "--version"]).splitlines()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": gpu or "none",
        "toolkit": nvcc[-2] if len(nvcc) > 1 else "none",
        "system": f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "commit": output_of(["git", "-C", str(ROOT), "rev-parse", "HEAD"]) or "unknown",
    }


def markdown(report):
    lines = ["# GPU acceptance", ""]
    lines += [f"- {name}: {value}" for name, value in report["facts"].items()]
    lines += ["", "| check | verdict | seconds | remark |", "|---|---|---|---|"]
    for c in report["checks"]:
        remark = c["remark"].replace("|", "/").replace("\n", " ")[:400]
        lines.append(f"| {c['name']} | {c['verdict']} | {c['seconds']} | {remark} |")
    if report["throughput"]:
        lines += ["", "Inception-v3, 299 pixels, synthetic images, training steps:", "",
                  "| program | precision | batch | images/s | peak memory, GB |", "|---|---|---|---|---|"]
        for r in report["throughput"]:
            rate = f"{r['examples_per_second']:.0f}" if "examples_per_second" in r else r.get("error", "?")[:200]
            memory = f"{r['peak_bytes'] / 1e9:.1f}" if "peak_bytes" in r else ""
            lines.append(f"| {r['who']} | {r['precision']} | {r['batch']} | {rate} | {memory} |")
        lines += ["", "Lockstep's memory is what nvidia-smi shows of the whole card, PyTorch's what its allocator reserved."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", help="a folder that scripts/bundle.sh made")
    parser.add_argument("--build", help="a build folder")
    parser.add_argument("--out", default=str(ROOT / "build/gpu_acceptance"))
    parser.add_argument("--device-kind", choices=["gpu", "cpu"], default="gpu", help="cpu: tries the script itself")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        acceptance = Acceptance(arguments, pathlib.Path(scratch))
        acceptance.run_all()
    report = {"facts": facts(), "checks": acceptance.checks, "throughput": acceptance.rates}
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "report.md").write_text(markdown(report))
    print(f"{out}/report.md")
    return any(c["verdict"] == "FAILED" for c in acceptance.checks)


if __name__ == "__main__":
    sys.exit(main())
