"""Mode accept: tests of runs beyond right values: repeatable bits, several ranks, kills, convergence."""

import os
import re

from children import Failed, Skipped
from kit import Step
from smoke import sanitize

PRECISIONS = ("bf16", "fp16", "tf32", "float32")
LEAST_TOP1 = 0.8          # of the digits, at the end of the recipe
ONE_GPU = ("/usr/bin/env", "CUDA_VISIBLE_DEVICES=" + os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])
SANITIZER_FINDS = {"memcheck": "errors", "racecheck": "hazards"}  # which its summary counts
# Racecheck is many times slower than memcheck: only kernels with sums over blocks, which share memory.
RACE_TESTS = "an update on a GPU*,a GPU computes a max pool that normalizes*,an average pool on a GPU sums*"
SANITIZED = {"memcheck": "[gpu]", "racecheck": RACE_TESTS}
EVALUATION_LOSSES = 1e-3  # largest difference of an evaluation's loss between CPU and GPU in float32


def steps(kit):
    def step(name, seconds, work):
        return Step("accept", name, seconds, work)

    return [step("twice the same run: the same bits", 40, lambda: twice(kit)),
            step("captured or not: the same bits", 40, lambda: captured(kit)),
            step("one rank with NCCL and without: the same bits", 40, lambda: nccl(kit)),
            step("two ranks on one GPU", 40, lambda: two_ranks(kit)),
            step("two GPUs over NCCL, captured or not: the same bits", 60, lambda: two_gpus(kit)),
            step("kill and resume", 60, lambda: kill_and_resume(kit)),
            step("checkpoints between CPU and GPU", 60, lambda: exchange(kit)),
            *(step(f"digits to the end in {p}", 60, lambda p=p: convergence(kit, p)) for p in PRECISIONS),
            step("memcheck of our kernels", 60, lambda: memory_check(kit, "memcheck")),
            step("racecheck of our kernels", 45, lambda: memory_check(kit, "racecheck"))]


def precision(kit, wanted="bf16"):
    return ("--train.precision", wanted if kit.device == "gpu" else "float32")


def twice(kit):
    for name in ("first", "second"):
        kit.train(name, "--train.steps", kit.few, *precision(kit))
    return kit.same_bits("first", "second")


def captured(kit):
    """The trace proves that the second run replayed a captured step and the first did not."""
    for name in ("off", "auto"):
        kit.train(name, "--train.steps", kit.few, "--device.graph", name, "--log.trace_steps", 3, *precision(kit))
    replayed = [name for name in ("off", "auto")
                if (kit.scratch / name / "trace.json").exists() and "captured step" in (kit.scratch / name / "trace.json").read_text()]
    remark = kit.same_bits("off", "auto")
    if kit.device == "gpu" and replayed != ["auto"]:
        raise Failed(f"a captured step was replayed with device.graph = {replayed}, not with auto alone ({remark})")
    return remark


def nccl(kit):
    if kit.device != "gpu":
        raise Skipped("NCCL needs a GPU")
    for name in ("nccl", "mpi"):
        kit.train(name, "--train.steps", kit.few, "--comm.transport", name)
    return kit.same_bits("nccl", "mpi")


def two_ranks(kit):
    """Two ranks share one GPU; without device.share, they are refused."""
    if kit.device == "gpu":
        try:
            kit.train("refused", "--train.steps", 2, ranks=2, before=ONE_GPU)
        except Failed as error:
            if "device.share" not in str(error):
                raise
        else:
            raise Failed("two ranks on one GPU are not refused without device.share")
    kit.train("two", "--train.steps", kit.few, "--train.audit_every", 5, "--device.share", "true", ranks=2, before=ONE_GPU)
    return f"the ranks stay equal; loss {kit.losses('two')[0]:.4f} to {kit.losses('two')[-1]:.4f}"


def two_gpus(kit):
    """NCCL's own threads launch its operations, also during a capture that the thread of the step has started."""
    if kit.device != "gpu":
        raise Skipped("NCCL needs GPUs")
    for name in ("nccl_off", "nccl_auto"):
        try:
            kit.train(name, "--train.steps", kit.few, "--comm.transport", "nccl", "--device.graph", name[5:], ranks=2)
        except Failed as error:
            if "device.share" in str(error):
                raise Skipped("there is one GPU") from error
            raise
    return kit.same_bits("nccl_off", "nccl_auto")


def kill_and_resume(kit):
    """The run is killed as soon as a checkpoint is complete, and is long, because a fast GPU would end a short one before that. Its
    plans are timed, and the resumed run uses them."""
    often = ("--checkpoint.every_steps", kit.few, "--device.tune", "auto")
    text = kit.train("killed", "--train.steps", 100 * kit.few, *often, stop_at=r"checkpoint of step \d+: ")
    saved = max((int(file.stem[5:]) for file in (kit.scratch / "killed").glob("step-*.h5")), default=None)
    if saved is None:
        raise Failed(f"ended without a checkpoint: {text[-300:]}")
    end = saved + kit.few
    text = kit.train("killed", "--train.steps", end, "--device.tune", "auto")
    expect_resumed(text, saved)
    if kit.rows("killed")[-1]["step"] != end:
        raise Failed(f"ended at step {kit.rows('killed')[-1]['step']}, not {end}")
    return f"killed after the checkpoint of step {saved}, resumed there"


def expect_resumed(text, step):
    resumed = re.search(r"resuming at step (\d+)", text)
    if not resumed:
        raise Failed(f"did not resume: {text[-300:]}")
    if int(resumed.group(1)) != step:
        raise Failed(f"resumed at step {resumed.group(1)}, not at {step}")


def exchange(kit):
    kinds = ("cpu", kit.device, "cpu")
    for turn, kind in enumerate(kinds):
        text = kit.train("exchange", "--train.steps", kit.few // 2 * (turn + 1), device=kind)
        if turn > 0:
            expect_resumed(text, kit.few // 2 * turn)
    losses = {}
    for kind in dict.fromkeys(kinds):
        text = kit.train("exchange", "--checkpoint", "latest", device=kind, command=["evaluate"])
        loss = re.search(r"loss ([^\s,]+)", text)
        try:
            losses[kind] = float(loss.group(1))
        except (AttributeError, ValueError) as error:
            raise Failed(f"no loss in: {text[-300:]}") from error
    spread = max(losses.values()) - min(losses.values())
    if not spread <= EVALUATION_LOSSES or not all(loss > 0 for loss in losses.values()):
        raise Failed(f"losses of the same checkpoint: {losses}")
    return f"trained on {', '.join(kinds)} in turn; losses {losses}"


def convergence(kit, wanted):
    if kit.device != "gpu" and wanted != "float32":
        raise Skipped(f"{wanted} needs a GPU")
    short = ("--train.epochs", 1, "--train.batch_size", 16, "--schedule.warmup_epochs", 0) if kit.arguments.small else ()
    kit.train(f"digits_{wanted}", *precision(kit, wanted), "--log.every_steps", 10, "--ema.decay", 0.99, *short)
    kit.rows(f"digits_{wanted}")
    best = max(row.get("top1") or 0 for row in kit.rows(f"digits_{wanted}", "eval"))
    if not best >= LEAST_TOP1:
        raise Failed(f"top-1 {best:.4f}, not {LEAST_TOP1}")
    return f"top-1 {best:.4f}"


def memory_check(kit, tool):
    """Checks only our own kernels, because cuDNN's would take minutes."""
    text = sanitize(kit, tool, ["--print-limit", "20", "--kernel-name", "kns=lockstep"], SANITIZED[tool])
    if "skipped, no usable GPU" in text or not re.search(rf"SUMMARY: 0 {SANITIZER_FINDS[tool]}", text):
        raise Failed(f"{tool} checked nothing or found something: {text[-300:]}")
    return "no errors"
