"""Mode pytorch: compares Lockstep and PyTorch on the same card in the same run: Lockstep, PyTorch, Lockstep again."""

import csv
import json
import math
import os
import pathlib
import statistics
from typing import NamedTuple

from children import Failed, Skipped
from kit import Step

CASE = pathlib.Path(__file__).resolve().parent / "pytorch_case.py"
TITLE = "Training beside PyTorch"


class Case(NamedTuple):
    model: str
    precision: str
    batch: int
    steps: int  # that are timed
    pixels: int = 299

    def name(self):
        return f"{self.model} {self.precision} {self.batch}"


# The most telling first: what is left when the time is out is not measured.
CASES = (Case("inception_v3", "bf16", 256, 40), Case("resnet50", "bf16", 256, 40, 224), Case("inception_v3", "fp16", 256, 40),
         Case("inception_v3", "bf16", 32, 150), Case("resnet50", "fp16", 256, 40, 224), Case("inception_v3", "tf32", 256, 30),
         Case("resnet50", "tf32", 256, 30, 224), Case("inception_v3", "float32", 128, 20),
         Case("resnet50", "float32", 128, 20, 224), Case("inception_v3", "bf16", 128, 60), Case("inception_v3", "bf16", 512, 20))
NOT_CAPTURED = Case("inception_v3", "bf16", 32, 60)
SMALL = {"cpu": Case("resnet50", "float32", 2, 3, 64), "gpu": Case("cifar10_cnn", "float32", 2, 20, 24)}


def steps(kit):
    def step(name, seconds, work):
        return Step("pytorch", name, seconds, work)

    small = kit.arguments.small
    cases = (SMALL[kit.device],) if small else CASES
    not_captured_case = SMALL[kit.device] if small else NOT_CAPTURED
    result = [step("ceilings", 75, lambda: ceilings(kit))]
    result += [step(f"pair: {case.name()}", 60, lambda case=case: pair(kit, case, ("eager", "graph"))) for case in cases]
    result.insert(2, step(f"plans timed: {cases[0].name()}", 75, lambda: ours_alone(kit, cases[0], "plans timed", tune="auto")))
    result.append(step("not captured", 30, lambda: ours_alone(kit, not_captured_case, "not captured", graph="off")))
    return result + [step(f"compiled: {case.name()}", 150, lambda case=case: pair(kit, case, ("compiled",))) for case in cases[:2]]


def number(value, what):
    """Returns the value, which must be a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise Failed(f"{what} is {value}")
    return value


# ---- the two sides

def lockstep(kit, case, graph="auto", tune="off"):
    """Returns the mean milliseconds of a step in benchmark mode, which saves nothing and augments no images, and the card's peak
    memory according to nvidia-smi, in GB."""
    directory = kit.scratch / "benchmark"
    command = [*kit.program("trainer"), "--model", case.model, "--model.image_size", case.pixels, "--batch_size", case.batch, "--num_batches", case.steps,
               "--num_warmup_batches", 3 if kit.arguments.small else 10, "--display_every", case.steps, "--device", kit.device,
               "--optimizer", "rmsprop" if case.model == "inception_v3" else "momentum", "--benchmark_log_dir", directory,
               "--train.precision", case.precision, "--device.graph", graph, "--device.tune", tune, "--data.workers", max(1, (os.cpu_count() or 4) - 3)]
    (directory / "benchmark.json").unlink(missing_ok=True)
    used = kit.scratch / "memory.txt"
    with kit.children.beside(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "500"], used):
        kit.run(command)
    numbers = [int(line) for line in used.read_text(errors="replace").split() if line.isdigit()]
    peak = round(max(numbers) * (1 << 20) / 1e9, 1) if numbers else None
    try:
        seconds = json.loads((directory / "benchmark.json").read_text())["step_seconds"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"benchmark.json cannot be read: {error}") from error
    if len(seconds) != case.steps:
        raise Failed(f"benchmark.json has {len(seconds)} steps, not {case.steps}")
    # The host is steps ahead of the device and reads some ends together, so single times can be 0; their sum is right.
    return number(sum(seconds) / case.steps, "the mean time of a step") * 1e3, peak


def pytorch(kit, case, variants):
    """Returns a result for each variant that PyTorch could run."""
    lines = kit.run([kit.python(), CASE, case.model, case.pixels, case.precision, case.batch, case.steps, *variants]).splitlines()
    results = {}
    for line in lines:
        if not line.startswith("{"):
            continue
        try:
            result = json.loads(line)
            results[result["variant"]] = result
            expect_device(kit, result)
        except (ValueError, KeyError) as error:
            raise Failed(f"PyTorch's program says: {line[:200]}") from error
    return results


def expect_device(kit, result):
    """Rejects a result from the CPU, to which PyTorch falls back without a GPU: the ratio would mean nothing."""
    wanted = "cuda" if kit.device == "gpu" else "cpu"
    if result["device"] != wanted:
        raise Failed(f"PyTorch computed on the device {result['device']}, not on {wanted}")


def budget_of(kit, case):
    """Returns the kernels that the compiled step launches and the gigabytes that they move, from test/models/step_budget.tsv; None if
    it has no such step. Its images have 299 pixels."""
    if case.pixels != 299:
        return None
    with open(kit.budget, encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if (row["model"], row["precision"], row["batch"], row["device"]) == (case.model, case.precision, str(case.batch), "h200"):
                return row
    return None


# ---- steps

def ceilings(kit):
    text = kit.run([kit.python(), "-c", "import importlib.util as u; print([n for n in ('torch', 'torchvision') if not u.find_spec(n)])"])
    if text.strip() != "[]":
        if not text.startswith("["):
            raise Failed(f"Python says: {text[:200]}")
        kit.without_pytorch = f"{kit.python()} has not {text.strip()[:100]}"
        raise Skipped(kit.without_pytorch)
    lines = [line for line in kit.run([kit.python(), CASE, "ceilings"]).splitlines() if line.startswith("{")]
    try:
        found = json.loads(lines[-1])
        expect_device(kit, found)
        copy, product = (number(found[key], key) for key in ("copy_bytes_per_second", "bf16_operations_per_second"))
    except (ValueError, KeyError, IndexError) as error:
        raise Failed(f"PyTorch's program says: {lines[-1:]}") from error
    kit.report.facts["PyTorch"] = f"{found.get('torch')}, cuDNN {found.get('cudnn')}, device {found.get('device')}"
    kit.ceilings = {"copy": copy, "product": product}
    remark = f"a copy on the device moves {copy * 1e-12:.2f} TB/s, a bf16 product of 8192 does {product * 1e-12:.0f} TFLOP/s"
    kit.report.facts["ceilings"] = remark
    return remark


def pair(kit, case, variants):
    first, memory = lockstep(kit, case)
    row = {"model": case.model, "precision": case.precision, "batch": case.batch, "Lockstep, ms": f"{first:.2f}",
           "Lockstep, images/s": round(1e3 * case.batch / first), "Lockstep, GB": memory}
    try:
        if kit.without_pytorch:
            raise Skipped(f"{first:.2f} ms a step; {kit.without_pytorch}")
        theirs = pytorch(kit, case, variants)
        again, _ = lockstep(kit, case)
        ours = statistics.mean((first, again))
        row.update({"Lockstep, ms": f"{first:.2f}, {again:.2f}", "Lockstep, images/s": round(1e3 * case.batch / ours)})
        compare(row, ours, theirs, variants)
        budget = budget_of(kit, case)
        if budget:
            kit.report.facts.setdefault("ceilings", "assumed of an H200, not measured")
            least = float(budget["all_GB"]) * 1e12 / kit.ceilings["copy"]
            row.update({"launches": int(budget["kernels"]), "GB moved": float(budget["all_GB"]), "ms for them at least": f"{least:.1f}"})
        failed = [f"{v}: {theirs.get(v, {}).get('error', 'nothing printed')}" for v in variants if "ms" not in theirs.get(v, {})]
        if failed:
            raise Failed("PyTorch, " + "; ".join(failed))
    except (Failed, Skipped) as error:
        row["remark"] = str(error)[:200]
        raise
    finally:
        kit.report.add_row(TITLE, row)
    return ", ".join(f"{key} {row[key]}" for key in row if "images/s" in key or key.startswith("times"))


def compare(row, ours, theirs, variants):
    """With a ratio above 1, Lockstep is faster."""
    for variant in variants:
        result = theirs.get(variant, {})
        if "ms" not in result:
            continue
        number(result["loss"], f"PyTorch's loss ({variant})")
        ms = number(result["ms"], f"PyTorch's step ({variant})")
        row[f"PyTorch {variant}, images/s"] = round(number(result["images_per_second"], "images a second"))
        row[f"PyTorch {variant}, GB"] = round(result["peak_bytes"] / 1e9, 1)
        row[f"times PyTorch {variant}"] = f"{ms / ours:.2f}"


def ours_alone(kit, case, how, **options):
    ms, memory = lockstep(kit, case, **options)
    kit.report.add_row(TITLE, {"model": f"{case.model}, {how}", "precision": case.precision, "batch": case.batch,
                               "Lockstep, ms": f"{ms:.2f}", "Lockstep, images/s": round(1e3 * case.batch / ms), "Lockstep, GB": memory})
    return f"{ms:.2f} ms a step"
