"""Stands in for every program that the GPU kit starts: stand_in.py NAME ARGUMENTS...

STAND_IN_FAULTS, a JSON object, names the steps in which it fails, and how: crash, hang, nan, flood; wrong, which is an end
without an error and with a result that must not pass; half, a crash after a part of the results; again, a crash of a
benchmark that times plans; uncaptured, a benchmark whose step cannot be captured; unsupported, a compute-sanitizer that refuses the device;
raw, a device that cuDNN does not describe in JSON.
"""

import json
import os
import pathlib
import signal
import sys
import time

NAME, *WORDS = sys.argv[1:]
FAULT = json.loads(os.environ.get("STAND_IN_FAULTS", "{}")).get(os.environ.get("LOCKSTEP_KIT_STEP"))
NAN = float("nan")


def option(name, default=None):
    return WORDS[WORDS.index(name) + 1] if name in WORDS else default


def crash_without_a_word():
    os.kill(os.getpid(), signal.SIGSEGV)


def crash():
    print("terminate called after throwing an instance of 'std::runtime_error'", flush=True)
    crash_without_a_word()


def hang():
    """With a process beside it that holds the output, and in a process group of its own as mpirun's ranks are."""
    print("about to hang", flush=True)
    if os.fork() == 0:
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def flood():
    while True:
        sys.stdout.write("again and again\n" * 65536)


def loss_at(step):
    return NAN if FAULT == "nan" and step > 2 else 2.0 + 1.0 / step


def name_device(kind):
    if kind == "gpu":
        print("GPU 0: Stand-in (fake), 1.0 GB, compute capability 9.0")


def train():
    directory = pathlib.Path(option("--checkpoint.directory"))
    directory.mkdir(parents=True, exist_ok=True)
    name_device(option("--device.kind"))
    if "LOCKSTEP_STAND_IN_RANKS" in os.environ and option("--device.share") != "true" and option("--comm.transport") != "nccl":
        sys.exit("error: two ranks have one GPU; device.share = true allows it")
    steps = int(option("--train.steps", 90))
    begin = max((int(file.stem[5:]) for file in directory.glob("step-*.h5")), default=0)
    if begin:
        print(f"resuming at step {begin - (FAULT == 'wrong')} from {directory}")
    with open(directory / "metrics.jsonl", "a", encoding="utf-8") as file:
        for step in range(begin + 1, steps + 1):
            file.write(json.dumps({"kind": "train", "step": step, "loss": loss_at(step)}) + "\n")
            if step % int(option("--checkpoint.every_steps", steps)) == 0:
                file.flush()
                (directory / f"step-{step:08}.h5").touch()
                print(f"checkpoint of step {step}: {directory}", flush=True)
        file.write(json.dumps({"kind": "eval", "step": steps, "loss": loss_at(steps), "top1": 0.97}) + "\n")
    if "--log.trace_steps" in WORDS:
        (directory / "trace.json").write_text("" if option("--device.graph") == "off" else "captured step")
    if steps >= 1000 and begin == 0:
        time.sleep(600)  # the run is killed


def benchmark():
    name_device(option("--device"))
    directory = pathlib.Path(option("--benchmark_log_dir"))
    directory.mkdir(exist_ok=True)
    if FAULT == "again" and option("--device.tune") == "auto":
        crash()
    if FAULT == "uncaptured":
        print("warning: the step cannot be captured, so its kernels are enqueued one by one, which costs speed, no more: a stand-in")
    seconds = NAN if FAULT == "nan" else 0.02
    (directory / "benchmark.json").write_text(json.dumps({"step_seconds": [seconds] * int(option("--num_batches"))}))


def trainer():
    if WORDS == ["--version"]:
        print("nan" if FAULT == "nan" else "trainer (Lockstep) 0.1.0\ncommit: of a stand-in")
    elif WORDS[0] == "export":
        pathlib.Path(option("--to")).write_text("weights")
    elif WORDS[0] == "evaluate":
        print(f"evaluation at step 30 (raw weights): top-1 97 %, loss {loss_at(30):.4f}")
    elif "--benchmark_log_dir" in WORDS:
        benchmark()
    else:
        train()


def tests():
    if FAULT == "nan":
        for verdict, error in (("PASSED", 0.0), ("FAILED", NAN), ("PASSED", 0.0), ("FAILED", NAN)):
            print(f"a_test.cc:1: {verdict}:\n  CHECK( error < bound )\nwith expansion:\n  {error} < 0.001\nwith message:\n  bf16\n")
        sys.exit(42)
    print("with expansion:\n  true == true\n\nAll tests passed (5 assertions in 1 test case)")


def gpu_lab():
    ms = NAN if FAULT == "nan" else 0.5
    if WORDS == ["describe"]:
        raw = "no {JSON\0" if FAULT == "raw" else '{"deviceVer": 900}'
        print("a library says something\n" + ("nan" if FAULT == "nan" else json.dumps(
            {"name": "Stand-in (fake)", "multiprocessors": 132, "cudnn": 91900, "cudnn_device": raw})))
        return
    name_device("gpu")
    if FAULT == "half":
        half_a_table()
    elif WORDS[0] == "layers":
        print(f"layer\toperation\timplementation\tms\tfloor_ms\tGB_per_s\tTFLOP_per_s\toutput\nconv1\tConv2d\tcudnn:eng1\t{ms}\t0.1\t1\t1\tf32")
        print(f"sum\tConv2d, cudnn:eng1\t1\t{ms}\t0.1\nsum\tall\t1\t{ms}\t0.1")
    elif WORDS[0] == "fusions":
        print(f"fusion\tproblem\tlayers\tengines\tengine\tworkspace_MB\tms\tplain_ms\nstatistics\tconvolution\t1\t1\teng2\t0\t{ms}\t{ms}")
        print(f"fusion\tstatistics\t1\t1\t{-1 if FAULT == 'wrong' else ms}\t{ms}")
    else:
        print(f"problem\tlayers\tengine\ttaken\tallowed\tworkspace_MB\tms\nconvolution\t1\teng1\t{'' if FAULT == 'wrong' else 'taken'}\tallowed\t0\t{ms}")
        print(f"engines\t1\t1\t{ms}\t{ms}\t{ms}\t{ms}")


def half_a_table():
    """As gpu_lab leaves it when an engine ends the device, or when its time is over."""
    columns = {"engines": "problem\tlayers\tengine\ttaken\tallowed\tworkspace_MB\tms",
               "layers": "layer\toperation\timplementation\tms\tfloor_ms\tGB_per_s\tTFLOP_per_s\toutput",
               "fusions": "fusion\tproblem\tlayers\tengines\tengine\tworkspace_MB\tms\tplain_ms"}[WORDS[0]]
    row = {"engines": "a convolution\t1\teng1\ttaken\tallowed\t0\t0.5", "layers": "conv1\tConv2d\tcudnn:eng1\t0.5\t0.1\t1\t1\tf32",
           "fusions": "statistics\ta convolution\t1\t1\teng2\t0\t0.5\t0.5"}[WORDS[0]]
    print(columns, row, sep="\n", flush=True)
    sums = {"engines": "engines\t1\t1\t0.5\t0.5\t0.5\t0.5", "fusions": "fusion\tstatistics\t1\t1\t0.5\t0.5"}
    if WORDS[0] in sums:
        print(sums[WORDS[0]], "left out\t109", sep="\n", flush=True)
    print(row[:-8], end="", flush=True)
    crash_without_a_word()


def nvidia_smi():
    if "-lms" in WORDS:
        print("1024", flush=True)
        time.sleep(600)
    print("nan" if FAULT == "nan" or "-q" in WORDS else ", ".join(["Stand-in", "580.0"] + ["1"] * 8))


def python():
    """Of PyTorch, that is: its program's name is the first word."""
    value = NAN if FAULT == "nan" else 1e12
    device = "cpu" if FAULT == "wrong" else "cuda"
    if WORDS[0] == "-c":
        print("[]")
    elif WORDS[1] == "ceilings":
        print(json.dumps({"torch": "2.0", "device": device, "copy_bytes_per_second": value, "bf16_operations_per_second": value}))
    else:
        for variant in WORDS[6:]:
            print(json.dumps({"variant": variant, "device": device, "images_per_second": value, "ms": 1.0, "card_gb": 1.1, "loss": 1.0}), flush=True)
            if FAULT == "half":
                crash()


def ldd():
    print("\tlibcudart.so.13 => /opt/libcudart.so.13 (0x00007f0000000000)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f0000000001)")


def sanitizer():
    if FAULT == "unsupported":
        sys.exit("========= Error: Device not supported. Please refer to the documentation.")
    found = 10 if FAULT == "wrong" else 0
    if option("--tool") == "racecheck":
        found = f"RACECHECK SUMMARY: {found} hazards displayed (0 errors, {found} warnings)"
    else:
        found = f"ERROR SUMMARY: {found} errors"
    print("nan" if FAULT == "nan" else f"========= {found}")


def mpirun():
    rest = WORDS[WORDS.index("-np") + 2:]
    os.environ["LOCKSTEP_STAND_IN_RANKS"] = option("-np")
    os.execv(rest[0], rest)


PROGRAMS = {"trainer": trainer, "mpirun": mpirun, "backend_test": tests, "golden_test": tests, "gpu_lab": gpu_lab,
            "nvidia-smi": nvidia_smi, "ldd": ldd, "compute-sanitizer": sanitizer, "python": python}
FAULTS = {"crash": crash, "hang": hang, "flood": flood}

if FAULT in FAULTS:
    if NAME in ("trainer", "gpu_lab"):
        name_device("gpu")
    FAULTS[FAULT]()
PROGRAMS[NAME]()
