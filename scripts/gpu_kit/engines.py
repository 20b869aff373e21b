"""Mode engines: the time of each layer of a step, and of cuDNN's other engines."""

import csv
import math
from typing import NamedTuple

from children import Failed, Skipped
from kit import Step

LAYER_CASES = (("inception_v3", "bf16", 256), ("resnet50", "bf16", 256), ("inception_v3", "fp16", 256))
ENGINE_CASES = (("inception_v3", "bf16", 256), ("resnet50", "bf16", 256))
FUSION_CASES = (("inception_v3", "fp16", 256),)  # cuDNN has none in bf16
SMALL = (("cifar10_cnn", "bf16", 4),)
SUMS = {"layers": "sum\t", "engines": "engines\t", "fusions": "fusion\t"}  # with which gpu_lab's lines of sums begin
RESERVE = 15  # seconds of a step's limit that remain for gpu_lab to end the convolution that it is timing
ENGINE_TITLE = "Convolutions of a step, ms, if each had the engine that is named"
FUSION_TITLE = "Convolutions fused with the parts of a batch norm, ms, beside the same convolutions alone"


def steps(kit):
    small = kit.arguments.small
    layer_cases = (("cifar10_cnn", "float32", 4),) if kit.device == "cpu" else SMALL if small else LAYER_CASES

    def step(name, seconds, work):
        return Step("engines", name, seconds, work)

    def name(case):
        return " ".join(map(str, case))

    result = [step(f"layers: {name(case)}", 45, lambda case=case: layers(kit, *case)) for case in layer_cases]
    result += [step(f"engines: {name(case)}", 90, lambda case=case: engines(kit, *case)) for case in (SMALL if small else ENGINE_CASES)]
    fusion_cases = (("cifar10_cnn", "fp16", 4),) if small else FUSION_CASES
    return result + [step(f"fusions: {name(case)}", 90, lambda case=case: fusions(kit, *case)) for case in fusion_cases]


class Answer(NamedTuple):
    """What gpu_lab printed, also before it failed."""
    rows: list       # of its table, as dictionaries
    sums: list       # its lines of sums, as lists
    left_out: int    # convolutions for which there was no time
    failure: object  # None, or why it failed

    def end(self, remark):
        """Returns the remark of the step, after all that there is has been reported."""
        if self.failure:
            raise self.failure
        return remark + (f"; no time was left for {self.left_out} convolutions" if self.left_out else "")


def ask(kit, command, model, precision, batch, *more):
    """Runs gpu_lab and adds the rows of its table to a file, also those that a program that failed had printed."""
    try:
        text, failure = kit.run([*kit.program("gpu_lab"), command, model, precision, batch, *more]), None
    except Failed as error:
        text, failure = error.output, error
    lines = text.splitlines()
    if failure and lines and not text.endswith("\n"):
        lines.pop()  # it may have been killed within this line
    begin = next((i for i, line in enumerate(lines) if line.endswith("\tms") or "\tms\t" in line), None)
    if begin is None:
        raise failure or Failed(f"gpu_lab {command} printed no table: {text[-300:]}")
    header = lines[begin]
    sums = [line for line in lines if line.startswith(SUMS[command]) and line != header]
    rows = [line for line in lines[begin + 1:] if line.count("\t") == header.count("\t") and line not in sums]
    file = kit.report.out / f"{command}.tsv"
    with open(file, "a", encoding="utf-8") as table:
        if table.tell() == 0:
            print("model\tprecision\tbatch", header, sep="\t", file=table)
        for row in rows:
            print(model, precision, batch, row, sep="\t", file=table)
    left_out = sum(int(line.split("\t")[1]) for line in lines if line.startswith("left out\t"))
    return Answer(list(csv.DictReader([header, *rows], delimiter="\t", quoting=csv.QUOTE_NONE)), [line.split("\t") for line in sums],
                  left_out, failure)


def milliseconds(text, what):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Failed(f"{what} took {text} ms")
    return value


def ask_a_gpu(kit, command, what, model, precision, batch):
    """Returns the answer to a question that needs a GPU; every row has a time."""
    if kit.device != "gpu":
        raise Skipped("engines are a GPU's")
    seconds = max(kit.step_left() - RESERVE, kit.step_left() / 2)
    answer = ask(kit, command, model, precision, batch, "--seconds", f"{seconds:.0f}")
    for row in answer.rows:
        milliseconds(row["ms"], row["engine"])
    if not answer.failure and not (answer.rows and answer.sums):
        raise Failed(f"gpu_lab printed {len(answer.rows)} {what} and {len(answer.sums)} lines of sums")
    return answer


def layers(kit, model, precision, batch):
    answer = ask(kit, "layers", model, precision, batch, *([] if kit.device == "gpu" else ["cpu"]))
    rows, sums = answer.rows, answer.sums
    for row in rows:
        milliseconds(row["ms"], row["layer"])
    answer.end("")
    if not rows or not sums or sums[-1][1] != "all":
        raise Failed(f"gpu_lab printed {len(rows)} layers and no sum of all")
    title = f"Layers by kind and engine: {model} {precision} {batch}"
    for _, kind, count, ms, floor in sums:
        ms, floor = milliseconds(ms, kind), milliseconds(floor, f"the floor of {kind}")
        kit.report.add_row(title, {"kind, engine": kind, "layers": count, "ms": ms, "at least, ms": floor,
                                   "times that": round(ms / floor, 1) if floor > 0 else None})
    return f"{len(rows)} layers, {float(sums[-1][3]):.2f} ms; {float(sums[-1][4]):.2f} ms at the rates assumed of an H200"


def engines(kit, model, precision, batch):
    answer = ask_a_gpu(kit, "engines", "engines", model, precision, batch)
    rows, sums = answer.rows, answer.sums
    if answer.failure and not (sums and int(sums[-1][1])):
        raise answer.failure
    taken = {row["problem"] for row in rows if row["taken"]}
    unknown = sorted({row["problem"] for row in rows} - taken)
    if not answer.failure and (unknown or len(taken) != int(sums[-1][1])):
        raise Failed(f"of {sums[-1][1]} convolutions {len(taken)} have the backend's engine among cuDNN's; not {unknown[:1]}")
    untimed = [row["problem"] for row in rows if row["taken"] and float(row["ms"]) < 0]
    if untimed:
        raise Failed(f"the engine that the backend takes did not run: {untimed[0]}")
    names = ("convolutions", "engines", "as taken", "first of cuDNN's ranking", "fastest allowed", "fastest of all")
    # gpu_lab sums to -1 where a convolution has no time of such an engine.
    values = dict(zip(names, (value if float(value) >= 0 else "unknown" for value in sums[-1][1:])))
    if answer.left_out:
        values["convolutions"] += f", and {answer.left_out} not timed"
    kit.report.add_row(ENGINE_TITLE, {"model": model, "precision": precision, "batch": batch, **values})
    return answer.end(", ".join(f"{name} {values[name]} ms" for name in names[2:]))


def fusions(kit, model, precision, batch):
    answer = ask_a_gpu(kit, "fusions", "fused convolutions", model, precision, batch)
    for _, fusion, problems, fused, ms, plain_ms in answer.sums:
        ms, plain_ms = milliseconds(ms, fusion), milliseconds(plain_ms, fusion)
        if int(fused) > 0 and ms < 0:
            raise Failed(f"a fused convolution did not run: {fusion}")
        kit.report.add_row(FUSION_TITLE, {"fused with": fusion, "convolutions": int(problems), "of them fused": int(fused), "fused": ms,
                                          "alone": plain_ms if plain_ms >= 0 else "unknown"})
    return answer.end(", ".join(f"{fusion}: {ms} ms, alone {plain_ms} ms" for _, fusion, _, _, ms, plain_ms in answer.sums))
