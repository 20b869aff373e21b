"""Mode pytorch: compares Lockstep and PyTorch on the same card in the same run: Lockstep, PyTorch, Lockstep again."""

import csv
import json
import math
import os
import pathlib
import re
import statistics
from typing import NamedTuple

from children import Failed, Skipped
from kit import Step

CASE = pathlib.Path(__file__).resolve().parent / "pytorch_case.py"
TITLE = "Training beside PyTorch"
UNCAPTURED = re.compile(r"the step cannot be captured, [^:]*: (.*)")
# Known differences within a pair; pytorch_case.py has the rest as Lockstep's benchmark mode has it.
DIFFERENCES = ("in fp16, the loss scale of PyTorch's graph is fixed, the other ones adapt; PyTorch times its convolutions "
               "(cudnn.benchmark), Lockstep only where the table says timed plans; batch norms have trained scales on both sides, but "
               "not in the recipe inception_v3_imagenet; weight decay has other values")


class Case(NamedTuple):
    model: str
    precision: str
    batch: int
    steps: int  # that are timed
    pixels: int = 0  # of an image's side; 0: as the recipe has them

    def name(self):
        return f"{self.model} {self.precision} {self.batch}"

    def image_size(self):
        return self.pixels or RECIPE_PIXELS[self.model]


class Ours(NamedTuple):
    """What a run of Lockstep measured."""
    ms: float              # the mean of a step
    card_gb: float | None  # the most memory of the card that was in use, according to nvidia-smi
    uncaptured: str        # why the step could not be captured, or ""


RECIPE_PIXELS = {"inception_v3": 299, "resnet50": 224}
# The most telling first: what is left when the time is out is not measured.
CASES = (Case("inception_v3", "bf16", 256, 40), Case("resnet50", "bf16", 256, 40), Case("inception_v3", "fp16", 256, 40),
         Case("inception_v3", "bf16", 32, 150), Case("resnet50", "fp16", 256, 40), Case("inception_v3", "tf32", 256, 30),
         Case("resnet50", "tf32", 256, 30), Case("inception_v3", "float32", 128, 20),
         Case("resnet50", "float32", 128, 20), Case("inception_v3", "bf16", 128, 60), Case("inception_v3", "bf16", 512, 20))
NOT_CAPTURED = Case("inception_v3", "bf16", 32, 60)
SMALL = {"cpu": Case("resnet50", "float32", 2, 3, 64), "gpu": Case("cifar10_cnn", "float32", 2, 20, 24)}


def steps(kit):
    def step(name, seconds, work):
        return Step("pytorch", name, seconds, work)

    small = kit.arguments.small
    cases = (SMALL[kit.device],) if small else CASES
    not_captured_case = SMALL[kit.device] if small else NOT_CAPTURED
    result = [step("ceilings", 75, lambda: ceilings(kit))]
    for i, case in enumerate(cases):
        # The first starts everything cold, and the first two time plans.
        tune, seconds = ("auto", 100) if i < 2 else ("off", 60)
        result.append(step(f"pair: {case.name()}", seconds, lambda case=case, tune=tune: pair(kit, case, ("eager", "graph"), tune)))
    result.append(step("not captured", 30, lambda: not_captured(kit, not_captured_case)))
    return result + [step(f"compiled: {case.name()}", 150, lambda case=case: pair(kit, case, ("compiled",))) for case in cases[:1]]


def number(value, what):
    """Returns the value, which must be a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise Failed(f"{what} is {value}")
    return value


# ---- the two sides

def lockstep(kit, case, graph="auto", tune="off"):
    """Runs benchmark mode, which saves nothing and augments no images."""
    directory = kit.scratch / "benchmark"
    command = [*kit.program("trainer"), "--model", case.model, "--model.image_size", case.image_size(), "--batch_size", case.batch, "--num_batches", case.steps,
               "--num_warmup_batches", 3 if kit.arguments.small else 10, "--display_every", case.steps, "--device", kit.device,
               "--optimizer", "rmsprop" if case.model == "inception_v3" else "momentum", "--benchmark_log_dir", directory,
               "--train.precision", case.precision, "--device.graph", graph, "--device.tune", tune, "--data.workers", max(1, (os.cpu_count() or 4) - 3)]
    (directory / "benchmark.json").unlink(missing_ok=True)
    used = kit.scratch / "memory.txt"
    with kit.children.beside(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "500"], used):
        uncaptured = UNCAPTURED.search(kit.run(command))
    numbers = [int(line) for line in used.read_text(errors="replace").split() if line.isdigit()]
    peak = round(max(numbers) * (1 << 20) / 1e9, 1) if numbers else None
    try:
        seconds = json.loads((directory / "benchmark.json").read_text())["step_seconds"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"benchmark.json cannot be read: {error}") from error
    if len(seconds) != case.steps:
        raise Failed(f"benchmark.json has {len(seconds)} steps, not {case.steps}")
    # The host is steps ahead of the device and reads some ends together, so single times can be 0; their sum is right.
    mean = number(sum(seconds) / case.steps, "the mean time of a step")
    return Ours(mean * 1e3, peak, uncaptured.group(1) if uncaptured else "")


def pytorch(kit, case, variants):
    """Returns the results of PyTorch's program by variant, and what went wrong: a program that is killed leaves the results that it
    has printed."""
    problems = []
    try:
        text = kit.run([kit.python(), CASE, case.model, case.image_size(), case.precision, case.batch, case.steps, *variants])
    except Failed as failure:
        text = failure.output
        problems.append(str(failure))
    results = {}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            result = json.loads(line)
            expect_device(kit, result)
            results[result["variant"]] = result
        except (ValueError, KeyError):
            problems.append(f"PyTorch's program says: {line[:200]}")
        except Failed as failure:
            problems.append(str(failure))
    return results, problems


def expect_device(kit, result):
    """Rejects a result from the CPU, to which PyTorch falls back without a GPU: the ratio would mean nothing."""
    wanted = "cuda" if kit.device == "gpu" else "cpu"
    if result["device"] != wanted:
        raise Failed(f"PyTorch computed on the device {result['device']}, not on {wanted}")


def budget_of(kit, case):
    """Returns the kernels that the compiled step launches and the gigabytes that they move, from test/models/step_budget.tsv; None if
    it has no such step. Its images have the size of the recipe."""
    if case.pixels:
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


def pair(kit, case, variants, tune="off"):
    """Lockstep, PyTorch, and Lockstep again: with timed plans if `tune` is "auto", else to see whether the card has kept its speed.
    The row is in the report from the first result on, so that a run that is killed leaves what it has measured."""
    kit.report.facts["differences within a pair"] = DIFFERENCES
    first = lockstep(kit, case)
    row = {"model": case.model, "precision": case.precision, "batch": case.batch, "Lockstep, ms": f"{first.ms:.2f}",
           "Lockstep, images/s": images_per_second(case, first.ms), "Lockstep, GB of the card": first.card_gb,
           **least(kit, case)}
    kit.report.add_row(TITLE, row)
    problems = [f"the step was not captured: {first.uncaptured}"] if first.uncaptured else []
    results = {}
    if not kit.without_pytorch:
        results, wrong = pytorch(kit, case, variants)
        problems += wrong + compare(row, first.ms, results, variants)
        kit.report.save()
    if tune == "auto" or results:
        problems += again(kit, case, row, first, results, tune)
    row["remark"] = "; ".join(problems)[:300] or kit.without_pytorch
    if problems:
        raise Failed("; ".join(problems))
    if kit.without_pytorch:
        raise Skipped(f"{first.ms:.2f} ms a step; {kit.without_pytorch}")
    return ", ".join(f"{key} {row[key]}" for key in row if "images/s" in key or key.startswith("times"))


def images_per_second(case, ms):
    return round(1e3 * case.batch / ms)


def least(kit, case):
    """Returns the launches of a step, and how long its memory traffic takes at least, as columns of the case's row."""
    budget = budget_of(kit, case)
    if not budget:
        return {}
    kit.report.facts.setdefault("ceilings", "assumed of an H200, not measured")
    milliseconds = float(budget["all_GB"]) * 1e12 / kit.ceilings["copy"]
    return {"launches": int(budget["kernels"]), "GB moved": float(budget["all_GB"]), "ms for them at least": f"{milliseconds:.1f}"}


def again(kit, case, row, first, results, tune):
    """The second run of Lockstep. Returns what went wrong, and keeps the results of the first run in any case."""
    if kit.step_left() < 1:
        return ["no time was left for the second run of Lockstep"]
    try:
        second = lockstep(kit, case, tune=tune)
    except Failed as failure:
        return [f"the second run of Lockstep: {failure}"]
    measured = {name: result["ms"] for name, result in results.items() if f"times PyTorch {name}" in row}
    if tune == "auto":
        row.update({"timed plans, ms": f"{second.ms:.2f}", "timed plans, images/s": images_per_second(case, second.ms)})
        row.update({f"times PyTorch {name}, timed plans": f"{ms / second.ms:.2f}" for name, ms in measured.items()})
    else:
        ours = statistics.mean((first.ms, second.ms))
        row.update({"Lockstep, ms": f"{first.ms:.2f}, {second.ms:.2f}", "Lockstep, images/s": images_per_second(case, ours)})
        row.update({f"times PyTorch {name}": f"{ms / ours:.2f}" for name, ms in measured.items()})
    return [f"the second step was not captured: {second.uncaptured}"] if second.uncaptured else []


def compare(row, ours, results, variants):
    """Adds PyTorch's results to the row, and returns what is wrong with them. With a ratio above 1, Lockstep is faster."""
    problems = []
    for variant in variants:
        result = results.get(variant, {})
        if "ms" not in result:
            problems.append(f"PyTorch {variant}: {result.get('error', 'no result')}")
            continue
        try:
            number(result.get("loss"), f"PyTorch's loss ({variant})")
            ms = number(result["ms"], f"PyTorch's step ({variant})")
            images = round(number(result.get("images_per_second"), "images a second"))
        except Failed as failure:
            problems.append(str(failure))
            continue
        row[f"PyTorch {variant}, images/s"] = images
        row[f"PyTorch {variant}, GB of the card"] = result.get("card_gb")
        row[f"times PyTorch {variant}"] = f"{ms / ours:.2f}"
    return problems


def not_captured(kit, case):
    ours = lockstep(kit, case, graph="off")
    kit.report.add_row(TITLE, {"model": f"{case.model}, not captured", "precision": case.precision, "batch": case.batch,
                               "Lockstep, ms": f"{ours.ms:.2f}", "Lockstep, images/s": images_per_second(case, ours.ms),
                               "Lockstep, GB of the card": ours.card_gb})
    return f"{ours.ms:.2f} ms a step"
