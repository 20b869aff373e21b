#!/usr/bin/env python3
"""Loads an Inception-v3 checkpoint into torchvision's model:  load_in_pytorch.py runs/digits/latest [ema]"""
import sys

import h5py
import torch
import torchvision

group = sys.argv[2] if len(sys.argv) > 2 else "model"
with h5py.File(sys.argv[1]) as file:
    state = {name: torch.from_numpy(data[()]) for name, data in file[group].items()}
model = torchvision.models.inception_v3(weights=None, init_weights=False, transform_input=False,
                                        num_classes=len(state["fc.bias"]), aux_logits="AuxLogits.fc.bias" in state)
missing, unexpected = model.load_state_dict(state, strict=False)
assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing), (missing, unexpected)
print(f"{len(state)} arrays loaded; parameters: {sum(p.numel() for p in model.parameters())}")
