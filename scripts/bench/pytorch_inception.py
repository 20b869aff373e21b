#!/usr/bin/env python3
"""PyTorch's side of cpu_baseline.py: trains torchvision's Inception-v3 on random images and prints each step's seconds."""

import argparse
import resource
import time

import torch
import torchvision


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, required=True, help="images of this process in each step")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)

    model = torchvision.models.inception_v3(weights=None, aux_logits=True, init_weights=True)
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.9, eps=1.0, momentum=0.9, weight_decay=4e-5)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    images = torch.rand(arguments.batch, 3, 299, 299).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (arguments.batch,))

    for step in range(1, arguments.steps + 1):
        start = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        logits, aux_logits = model(images)
        loss = criterion(logits, labels) + 0.4 * criterion(aux_logits, labels)
        loss.backward()
        optimizer.step()
        loss.item()
        print(f"step {step}, seconds {time.monotonic() - start:.6f}", flush=True)
    print(f"peak_kb {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}", flush=True)


if __name__ == "__main__":
    main()
