"""Computes golden files with PyTorch and torchvision, as README.md describes them.

    python3 test/golden/make_golden.py resnet18 --batch 8 --image_size 64 --to test/golden/resnet18_64_b8.h5
    python3 test/golden/make_golden.py --parameters > test/golden/resnet_parameters.txt
"""

import argparse
import itertools

import h5py
import numpy as np
import torch
import torchvision

HEAD = 4
RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
MODULES = {name: getattr(torchvision.models, name) for name in RESNETS}  # by model; called with num_classes


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def random_bits(name, count):
    z = np.arange(count, dtype=np.uint64) + np.uint64(fnv1a64(name)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(name, shape):
    return (2 * ((random_bits(name, int(np.prod(shape))) >> np.uint64(40)) * 2.0**-24) - 1).reshape(shape)


def parameter(name, shape):
    if len(shape) > 1:
        fan_in = np.prod(shape[1:])
        return (np.sqrt(3.0) * np.sqrt(2.0 / fan_in) if len(shape) == 4 else np.sqrt(3.0 / fan_in)) * uniform(name, shape)
    of_norm = not name.startswith("fc.")
    if of_norm and name.endswith(".weight"):
        return 1 + 0.2 * uniform(name, shape)
    return (1 + 0.5 * uniform(name, shape)) if name.endswith(".running_var") else 0.1 * uniform(name, shape)


def rows(prefix, suffix, tensors):
    """Norm and first elements of each tensor."""
    flat = [t.detach().double().contiguous().numpy().ravel() for t in tensors]
    return {f"train/{prefix}_norm{suffix}": np.array([np.sqrt(np.sum(t * t)) for t in flat]),
            f"train/{prefix}_head{suffix}": np.array([np.resize(t, HEAD) for t in flat])}


def with_weights(model):
    state = {name: torch.from_numpy(parameter(name, tuple(t.shape)).astype(np.float32))
             for name, t in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    model.load_state_dict(state, strict=False)
    return model


def compute(case, build, dtype, memory_format):
    """Evaluation, then a training step, both with the initial weights."""
    model = with_weights(build()).to(dtype=dtype, memory_format=memory_format)
    shape = (case["batch"], 3, case["image_size"], case["image_size"])
    images = torch.from_numpy(uniform("input", shape).astype(np.float32)).to(dtype=dtype, memory_format=memory_format)
    labels = torch.from_numpy((random_bits("label", case["batch"]) % np.uint64(case["classes"])).astype(np.int64))
    with torch.no_grad():
        values = {"eval/logits": model.eval()(images).numpy()}
    model.train()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0
    logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=case["label_smoothing"])
    loss.backward()
    names, parameters = zip(*model.named_parameters())
    values |= {"train/logits": logits.detach().numpy(), "train/loss": np.float64(loss.item())}
    values |= rows("grad", "", [p.grad for p in parameters])
    with torch.no_grad():
        for p in parameters:
            p -= case["lr"] * (p.grad + case["weight_decay"] * p)
    buffers = {n: b for n, b in model.named_buffers() if not n.endswith("num_batches_tracked")}
    values |= rows("weight", "_after", parameters)
    if buffers:
        values |= rows("buffer", "_after", buffers.values())
    return values, names, tuple(buffers)


def write_golden(case, path, build, peers=True):
    with h5py.File(path, "w") as file:
        file.create_group("case").attrs.update(case)
        values, names, buffers = compute(case, build, torch.float64, torch.contiguous_format)
        values |= {"train/names": list(names)} | ({"train/buffers": list(buffers)} if buffers else {})
        for name, value in values.items():
            file[name] = value
        if not peers:
            return
        layouts = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
        for layout, threads, library in itertools.product(layouts, (1, 2), ("native", "onednn")):
            torch.set_num_threads(threads)
            with torch.backends.mkldnn.flags(enabled=library == "onednn"):
                peer = compute(case, build, torch.float32, layouts[layout])[0]
            for name, value in peer.items():
                file[f"peer_float32/{layout}_{threads}_{library}/{name}"] = value


def print_parameters():
    """A line for each ResNet: its parameters and statistics, their elements, and the hash of its "name [shape]" lines."""
    for name in RESNETS:
        state = {n: t for n, t in MODULES[name]().state_dict().items()
                 if not n.endswith("num_batches_tracked")}
        text = "".join(f"{n} [{','.join(map(str, t.shape))}]\n" for n, t in state.items())
        print(name, len(state), sum(t.numel() for t in state.values()), f"{fnv1a64(text):016x}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=MODULES)
    parser.add_argument("--parameters", action="store_true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--to")
    arguments = parser.parse_args()
    if arguments.parameters:
        print_parameters()
        return
    case = {"model": arguments.model, "salt": "", "batch": arguments.batch, "image_size": arguments.image_size, "classes": 10,
            "aux_weight": 0.0, "label_smoothing": 0.1, "lr": 2e-4, "weight_decay": 4e-5}
    write_golden(case, arguments.to, lambda: MODULES[arguments.model](num_classes=10))


if __name__ == "__main__":
    main()
