#!/usr/bin/env python3
"""PyTorch's side of gpu_acceptance.py: torchvision's Inception-v3 on one GPU, channels-last, one JSON line a case."""

import argparse
import json
import time

import torch
import torchvision

WARM_UP, STEPS = 5, 20


def measure(batch, precision, compiled):
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    model = torchvision.models.inception_v3(weights=None, aux_logits=True, init_weights=False)
    model = model.cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.9, eps=1.0, momentum=0.9, weight_decay=4e-5)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    images = torch.rand(batch, 3, 299, 299, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device="cuda")
    forward = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype):
            logits, aux_logits = forward(images)
            loss = criterion(logits, labels) + 0.4 * criterion(aux_logits, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return {
        "who": "PyTorch compiled" if compiled else "PyTorch eager",
        "version": torch.__version__,
        "precision": precision,
        "batch": batch,
        "examples_per_second": batch * STEPS / (time.monotonic() - begin),
        "peak_bytes": torch.cuda.max_memory_reserved(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="+", help="BATCH:PRECISION:eager or BATCH:PRECISION:compiled")
    for case in parser.parse_args().case:
        batch, precision, how = case.split(":")
        print(json.dumps(measure(int(batch), precision, how == "compiled")), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
