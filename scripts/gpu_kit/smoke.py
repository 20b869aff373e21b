"""Mode smoke, about a minute: tests that the plugin opens, and that each operation and a step of a network are right."""

import json
import os
import re
import shutil

from children import Failed, Skipped
from kit import Step

# Files of backend_test whose cases run on every backend that there is.
LAWS = ("known_values", "update_rules", "step_rules", "optimizer_run", "sync_batch_norm", "backend_law")
QUERY = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem,power.limit,pcie.link.gen.current,ecc.mode.current"
FIRST_LOSS, EARLY_LOSSES = 1e-4, 1e-2  # largest relative differences between CPU and GPU in float32
SANITIZER = "/usr/local/cuda/bin/compute-sanitizer"


def steps(kit):
    def step(name, seconds, work, **options):
        return Step("smoke", name, seconds, work, **options)

    result = [step("probe", 25, lambda: probe(kit), bars=True),
              step("the plugin opens", 30, lambda: kit.catch_tests("backend_test", ["the CUDA plugin opens*"]), bars=True),
              step("the device as cuDNN sees it", 20, lambda: describe(kit), bars=True),
              step("every operation, every precision", 60, lambda: operations(kit))]
    result += [step(f"every backend: {law}", 40, lambda law=law: every_backend(kit, law)) for law in LAWS]
    result += [step(f"golden values: {model}", 60, lambda model=model: kit.catch_tests("golden_test", [f"{model} on a GPU*"]))
               for model in ("cifar10_cnn", "inception_v3")]
    return result + [step("steps beside the CPU's", 90, lambda: beside_cpu(kit)),
                     step("a captured step", 40, lambda: captured(kit, "captured")),
                     step("one rank with NCCL, captured", 40, lambda: captured(kit, "nccl", "--comm.transport", "nccl"))]


# ---- what there is

def probe(kit):
    facts = kit.report.facts
    facts["program"] = "; ".join(kit.run([*kit.program("trainer"), "--version"], 10).splitlines())
    if "Lockstep" not in facts["program"]:
        raise Failed(f"trainer --version says: {facts['program'][:200]}")
    missing = unresolved(kit)
    facts["card"] = card(kit)
    if missing:
        raise Failed("the plugin lacks " + ", ".join(missing))
    loopback = facts["loopback interface"]
    return facts["card"] + ("" if loopback == "up" else f"; the loopback interface: {loopback}")


def card(kit):
    """Returns nvidia-smi's description of the card in one line; its whole output goes to the log."""
    if not shutil.which("nvidia-smi", path=kit.environment.get("PATH")):
        kit.report.warning = kit.report.warning or "No nvidia-smi here: nothing proves that the device is a card"
        return "no nvidia-smi"
    kit.run(["nvidia-smi", "-q"], 10)
    line = kit.run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"], 10).strip().splitlines()[:1]
    values = [value.strip() for value in line[0].split(",")] if line else []
    if len(values) != len(QUERY.split(",")):
        raise Failed(f"nvidia-smi names no card: {' '.join(line)[:200]}")
    kit.report.facts["driver"] = values[1]
    return ", ".join(f"{name} {value}" for name, value in zip(QUERY.split(","), values))


def unresolved(kit):
    """Returns the libraries that the plugin lacks; the report lists where the others come from."""
    plugin = kit.root / ("lib/lockstep/lockstep_cuda.so" if kit.arguments.bundle else "lockstep_cuda.so")
    if not plugin.exists():
        return [f"its own file {plugin}"]
    start = [kit.root / "run"] if kit.arguments.bundle else []
    lines = kit.run([*start, "ldd", plugin], 10).splitlines()
    found = dict(line.split(" => ", 1) for line in map(str.strip, lines) if " => " in line)
    cuda = [path.split(" (")[0] for name, path in found.items() if re.match(r"lib(cu|nccl|nv)", name)]
    kit.report.facts["CUDA's libraries"] = ", ".join(cuda) or "none"
    return [name for name, path in found.items() if "not found" in path]


def describe(kit):
    text = kit.run([*kit.program("gpu_lab"), "describe"])
    try:
        # Libraries may print lines around it.
        device, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
        name = device["name"]
    except (ValueError, TypeError, KeyError) as error:
        raise Failed(f"gpu_lab describe says: {text[:200]}") from error
    device["cudnn_device"] = parsed_or_raw(device.get("cudnn_device"))
    (kit.report.out / "device.json").write_text(json.dumps(device, indent=1) + "\n")
    kit.name_device(name)
    versions = {key: device.get(key) for key in ("driver", "runtime", "cudnn", "cublas", "nccl")}
    kit.report.facts["CUDA's versions"] = ", ".join(f"{key} {value}" for key, value in versions.items())
    return f"{name}, {device.get('multiprocessors')} multiprocessors"


def parsed_or_raw(text):
    """Returns the device as cuDNN describes it, or its own text if that is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text


# ---- what it computes

def sanitizer():
    found = shutil.which("compute-sanitizer") or (SANITIZER if os.path.exists(SANITIZER) else None)
    if not found:
        raise Skipped("there is no compute-sanitizer")
    return found


# Calls of CUDA that return an error are no findings: libraries try whether a call is supported.
SANITIZER_OPTIONS = {"memcheck": ("--report-api-errors", "no"), "racecheck": ()}


def sanitize(kit, tool, options, tests):
    """Runs cases of backend_test, named by a Catch2 test specification, under a tool of compute-sanitizer."""
    command = [sanitizer(), "--tool", tool, *SANITIZER_OPTIONS[tool], *options, "--error-exitcode", "9",
               *kit.program("backend_test"), tests]
    try:
        text, failure = kit.run(command), None
    except Failed as error:
        text, failure = error.output, error
    if "Device not supported" in text:
        raise Skipped("compute-sanitizer does not support this device")
    if failure:
        raise failure
    return text


def operations(kit):
    """If an operation fails, memcheck's first lines are the diagnosis."""
    try:
        return kit.catch_tests("backend_test", ["[gpu]"])
    except Failed as failure:
        try:
            sanitize(kit, "memcheck", ["--print-limit", "5"], "[gpu]")
            raise Failed(f"{failure}; memcheck finds nothing") from failure
        except Skipped:
            raise failure from None
        except Failed as second:
            raise Failed(f"{failure}; under memcheck: {second}") from failure


def every_backend(kit, law):
    """Verifies with the list of backends that the GPU was among those tested."""
    remark = kit.catch_tests("backend_test", ["-#", f"[#{law}_test]"])
    if kit.device == "gpu":
        listed = kit.run([*kit.program("backend_test"), "-s", "the GPU is a backend where it can be used*"])
        if not re.search(r"\btrue == true\b", listed):
            raise Failed(f"the backends here are without the GPU, so this proved nothing of it ({remark})")
    return remark


def beside_cpu(kit):
    common = ("--train.steps", kit.few, "--comm.transport", "mpi")  # NCCL has a step of its own
    kit.train("device", *common)
    kit.train("cpu", *common, device="cpu")
    gpu, cpu = kit.losses("device"), kit.losses("cpu")
    apart = [abs(a - b) / abs(b) for a, b in zip(gpu, cpu)]
    if len(apart) != kit.few or not apart[0] < FIRST_LOSS or not max(apart[:5]) < EARLY_LOSSES:
        raise Failed("losses differ from the CPU's by " + " ".join(f"{x:.1e}" for x in apart[:8]) + " ...")
    return f"relative differences of the losses: step 1 {apart[0]:.1e}, 5 {apart[4]:.1e}, {kit.few} {apart[-1]:.1e}"


def captured(kit, name, *options):
    """With device.graph = on, a step that cannot be captured is an error. A single rank opens NCCL only if it is asked to."""
    if kit.device != "gpu":
        raise Skipped("captures need a GPU")
    kit.train(name, "--train.steps", kit.few, "--device.graph", "on", *options)
    return f"loss {kit.losses(name)[0]:.4f} to {kit.losses(name)[-1]:.4f}"
