"""Exports narrow networks to ONNX by both of PyTorch's exporters, and computes their golden files (README.md).

    python3 test/golden/make_onnx.py test/golden/onnx [NETWORK...]

NAME.onnx is written in training mode, which keeps batch normalization, NAME_folded.onnx and NAME_dynamo.onnx in
evaluation mode.
"""

import pathlib
import sys
import unittest.mock

import onnx
import torch
import torchvision
from torch import nn

import make_golden

CLASSES = 10


class Branches(nn.Module):
    """What the others lack: branches with poolings, a norm with another epsilon, a view, two linear layers."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, eps=1e-3), nn.ReLU())
        self.left = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, (3, 1), padding=(1, 0)))
        self.right = nn.Conv2d(8, 6, 5, stride=2, padding=2)
        self.pool, self.mean = nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1)
        self.drop = nn.Dropout(0.25)
        self.hidden = nn.Linear(28 * 8 * 8, 12)
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        left = self.pool(self.left(x))
        x = torch.cat([left, torch.relu(self.right(x) + left), self.mean(x), self.pool(x)], 1)
        return self.fc(self.drop(torch.relu(self.hidden(x.view(x.size(0), -1)))))


class Groups(nn.Module):
    """A block of MobileNetV2, a convolution in groups, ReLU6, and linear layers without a bias."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.expand = nn.Sequential(nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False), nn.BatchNorm2d(32),
                                       nn.ReLU6())
        self.project = nn.Sequential(nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.grouped = nn.Conv2d(16, 24, 3, padding=1, groups=4)
        self.six = nn.ReLU6()
        self.hidden = nn.Linear(24, 12, bias=False)
        self.fc = nn.Linear(12, CLASSES, bias=False)

    def forward(self, x):
        x = self.stem(x)
        x = self.six(self.grouped(x + self.project(self.depthwise(self.expand(x)))))
        return self.fc(torch.relu(self.hidden(x.mean((2, 3)))))


def narrow(build, divisor):
    """A network of torchvision with fewer channels."""
    def layer(base, count):
        def init(self, *arguments, **options):
            channels = [c if c in (3, CLASSES) else c // divisor for c in arguments[:count]]
            base.__init__(self, *channels, *arguments[count:], **options)
        return type(base.__name__, (base,), {"__init__": init})

    with unittest.mock.patch.multiple(nn, Conv2d=layer(nn.Conv2d, 2), Linear=layer(nn.Linear, 2),
                                      BatchNorm2d=layer(nn.BatchNorm2d, 1)):
        return build(weights=None, num_classes=CLASSES)


NETWORKS = {"branches": (Branches, 16), "groups": (Groups, 32), "resnet18": (lambda: narrow(torchvision.models.resnet18, 32), 64),
            "squeezenet1_1": (lambda: narrow(torchvision.models.squeezenet1_1, 8), 47)}


def strip_traces(path):
    """Leaves out where in the source each node was called: large, and other paths on each machine."""
    file = onnx.load(path)
    for message in [*file.graph.node, *file.graph.value_info, *file.graph.input, *file.graph.output,
                    *file.graph.initializer, file.graph, file]:
        message.ClearField("metadata_props")
    onnx.save(file, path)


def export(model, path, image_size):
    images = torch.zeros(2, 3, image_size, image_size)
    names = {"input_names": ["images"], "output_names": ["logits"]}
    older = {**names, "dynamo": False, "opset_version": 17, "dynamic_axes": {"images": {0: "N"}}}
    model.eval()
    torch.onnx.export(model, images, f"{path}_folded.onnx", **older)
    torch.onnx.export(model, (images,), f"{path}_dynamo.onnx", **names, dynamo=True, external_data=False,
                      dynamic_shapes=({0: torch.export.Dim("N")},))
    strip_traces(f"{path}_dynamo.onnx")
    model.train()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0  # otherwise tracing updates the running statistics
    torch.onnx.export(model, images, f"{path}.onnx", **older, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False)


def main():
    directory = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or NETWORKS:
        build, image_size = NETWORKS[name]
        export(make_golden.with_weights(build()), directory / name, image_size)
        case = {"model": "file", "salt": "", "batch": 6, "image_size": image_size, "classes": CLASSES,
                "aux_weight": 0.0, "label_smoothing": 0.1, "lr": 0.01, "weight_decay": 1e-3}
        make_golden.write_golden(case, directory / f"{name}.h5", build, peers=False)


if __name__ == "__main__":
    main()
