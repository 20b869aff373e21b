#!/usr/bin/env python3
"""PyTorch's side of cpu.py: trains a model on random images and prints each step's seconds and its peak memory."""

import argparse
import resource
import time

import torch
import torchvision
from torch import nn


class Cifar10Cnn(nn.Module):
    """The two-convolution network of TensorFlow's CIFAR-10 tutorial, as models/cifar10_cnn.cc has it."""

    def __init__(self):
        super().__init__()
        norm = {"size": 9, "alpha": 0.001, "beta": 0.75, "k": 1.0}
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.LocalResponseNorm(**norm),
            nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.LocalResponseNorm(**norm), nn.MaxPool2d(3, 2, 1))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(4096, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(),
                                        nn.Linear(192, 10))

    def forward(self, images):
        return self.classifier(self.features(images))


def inception_v3():
    model = torchvision.models.inception_v3(weights=None, aux_logits=True, init_weights=True)
    return model, torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.9, eps=1.0, momentum=0.9, weight_decay=4e-5)


def resnet50():
    model = torchvision.models.resnet50(weights=None)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def cifar10_cnn():
    model = Cifar10Cnn()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


# Name: how it is built, with its optimizer; image size; classes.
MODELS = {"inception_v3": (inception_v3, 299, 1000), "resnet50": (resnet50, 224, 1000), "cifar10_cnn": (cifar10_cnn, 32, 10)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16 where autocast does")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)

    build, size, classes = MODELS[arguments.model]
    model, optimizer = build()
    model = model.to(memory_format=torch.channels_last).train()
    if arguments.compile:
        model = torch.compile(model)
    criterion = nn.CrossEntropyLoss()
    images = torch.rand(arguments.batch, 3, size, size).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (arguments.batch,))

    for step in range(1, arguments.steps + 1):
        start = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.autocast):
            output = model(images)
            if arguments.model == "inception_v3":
                logits, aux_logits = output
                loss = criterion(logits, labels) + 0.4 * criterion(aux_logits, labels)
            else:
                loss = criterion(output, labels)
        loss.backward()
        optimizer.step()
        loss.item()
        print(f"step {step}, seconds {time.monotonic() - start:.6f}", flush=True)
    print(f"peak_kb {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}", flush=True)


if __name__ == "__main__":
    main()
