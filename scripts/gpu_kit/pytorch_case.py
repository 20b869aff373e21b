"""PyTorch's side of a pair: trains torchvision's model on one GPU with images that stay there. Prints a JSON line for each variant.

    pytorch_case.py MODEL PIXELS PRECISION BATCH STEPS VARIANT...

Channels last, autocast in 16 bits, cuDNN's own timing of its engines (cudnn.benchmark). Variants: eager; graph, the whole step as
one CUDA graph; compiled, which is torch.compile inside such a graph. Instead of arguments, `ceilings`: what a copy and a matrix
product reach.
"""

import gc
import json
import statistics
import subprocess
import sys
import time

import torch
import torchvision

WARM_UP = 8
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # cpu: tries this script
KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}
CLASSES = 1001  # as Lockstep's benchmark mode has
LOSS_SCALE = 128.0  # fp16 inside a graph, where a scale that adapts itself would have to wait for the host


def build(name):
    if name == "inception_v3":
        return torchvision.models.inception_v3(weights=None, num_classes=CLASSES, aux_logits=True, init_weights=False,
                                              dropout=0.2)
    if name == "resnet50":
        return torchvision.models.resnet50(weights=None, num_classes=CLASSES)
    raise ValueError(f"torchvision has no {name}")


class Training:
    """A model, a batch, and the step."""

    def __init__(self, name, pixels, precision, batch, variant):
        torch.manual_seed(1)
        for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
            backend.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        self.model = build(name).to(DEVICE).to(memory_format=torch.channels_last).train()
        self.forward = torch.compile(self.model, dynamic=False) if variant == "compiled" else self.model
        self.images = torch.rand(batch, 3, pixels, pixels, device=DEVICE).to(memory_format=torch.channels_last)
        self.labels = torch.randint(CLASSES, (batch,), device=DEVICE)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.kind = KINDS.get(precision)
        self.in_graph = variant != "eager"
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=precision == "fp16" and not self.in_graph)
        self.scale = LOSS_SCALE if precision == "fp16" and self.in_graph else 1.0
        parameters = list(self.model.parameters())
        if name == "inception_v3":
            capturable = {"capturable": True} if self.in_graph and DEVICE == "cuda" else {}
            self.optimizer = torch.optim.RMSprop(parameters, lr=0.005, alpha=0.9, eps=1.0, momentum=0.9, weight_decay=4e-5, **capturable)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=0.005, momentum=0.9, weight_decay=4e-5)
        self.parameters = parameters

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)  # backward writes new gradients; in a graph they lie in the graph's own pool
        with torch.autocast(DEVICE, dtype=self.kind or torch.bfloat16, enabled=self.kind is not None):
            outputs = self.forward(self.images)
            if isinstance(outputs, tuple):
                loss = self.criterion(outputs[0], self.labels) + 0.4 * self.criterion(outputs[1], self.labels)
            else:
                loss = self.criterion(outputs, self.labels)
        self.scaler.scale(loss * self.scale).backward()
        if self.scale != 1:
            torch._foreach_mul_([p.grad for p in self.parameters], 1 / self.scale)  # pylint: disable=protected-access
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.loss = loss.detach()


def as_graph(training):
    """Returns the step as one replay; it is warmed up on a separate stream, as a capture requires."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            training.step()
    torch.cuda.current_stream().wait_stream(stream)
    training.optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        training.step()
    return graph.replay


def step_seconds(step, steps):
    for _ in range(WARM_UP):
        step()
    if DEVICE == "cpu":
        marks = [time.monotonic()]
        for _ in range(steps):
            step()
            marks.append(time.monotonic())
        return [b - a for a, b in zip(marks, marks[1:])]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]


def card_gb():
    """Returns the memory of the card that is in use according to nvidia-smi, as Lockstep's is measured; None if that is unknown."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=10, check=True).stdout
        return round(max(map(int, text.split())) * (1 << 20) / 1e9, 1)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def measure(name, pixels, precision, batch, steps, variant):
    training = Training(name, pixels, precision, batch, variant)
    step = training.step if variant == "eager" else as_graph(training)
    seconds = statistics.mean(step_seconds(step, steps))
    return {"images_per_second": batch / seconds, "ms": seconds * 1e3, "card_gb": card_gb(), "loss": float(training.loss)}


def ceilings():
    """Returns the bytes per second that a copy on the device reads and writes, and the operations per second of a product."""
    source = torch.rand(1 << 30, device=DEVICE)
    a, b = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    target = torch.empty_like(source)
    copy = statistics.median(step_seconds(lambda: target.copy_(source), 10))
    product = statistics.median(step_seconds(lambda: a @ b, 10))
    return {"copy_bytes_per_second": 2 * 4 * source.numel() / copy, "bf16_operations_per_second": 2 * 8192**3 / product}


def main():
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "device": DEVICE}
    if sys.argv[1:] == ["ceilings"]:
        print(json.dumps({**versions, **ceilings()}), flush=True)
        return
    name, pixels, precision, batch, steps, *variants = sys.argv[1:]
    for variant in variants:
        try:
            result = measure(name, int(pixels), precision, int(batch), int(steps), variant)
        except Exception as error:  # pylint: disable=broad-except; one variant that fails leaves the others
            result = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"variant": variant, **versions, **result}), flush=True)
        gc.collect()
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
