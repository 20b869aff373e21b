"""Prints test/backend/pytorch_optimizers.h: what PyTorch's optimizers make of the run in optimizer_run_test.cc.

    python3 test/backend/pytorch_optimizers.py > test/backend/pytorch_optimizers.h
"""

import math

import torch

STEPS = 50
DECAYED, PLAIN = 4, 2
WEIGHT_DECAY = 0.0625


def start(i):
    return (i - 2) * 0.5


def rate(step):
    return 0.0625 / (1 + step // 20)


def gradient(step, i, value):
    """Exact in float32 but for the part that pulls the value back."""
    return round(1024 * math.sin(1 + 3 * step + 7 * i)) / 1024 * (1 + i % 3) + 0.25 * value


def run(make):
    decayed = torch.tensor([start(i) for i in range(DECAYED)], dtype=torch.float64, requires_grad=True)
    plain = torch.tensor([start(DECAYED + i) for i in range(PLAIN)], dtype=torch.float64, requires_grad=True)
    optimizer = make([{"params": [decayed], "weight_decay": WEIGHT_DECAY}, {"params": [plain], "weight_decay": 0.0}])
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        for tensor, first in ((decayed, 0), (plain, DECAYED)):
            tensor.grad = torch.tensor([gradient(step, first + i, v.item()) for i, v in enumerate(tensor)],
                                       dtype=torch.float64)
        optimizer.step()

    def state(name):
        return [optimizer.state[t][name] for t in (decayed, plain)]

    return (decayed, plain), state


def row(name, tensors):
    values = ", ".join(repr(v.item()) for t in tensors for v in t.detach())
    print(f"inline const std::vector<double> {name} = {{{values}}};")


def main():
    print("// Printed by pytorch_optimizers.py under PyTorch " + torch.__version__.split("a")[0] + "; do not edit.")
    print("#pragma once\n\n#include <vector>\n\n// clang-format off\nnamespace lockstep::test::pytorch {\n")
    values, state = run(lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.75))
    row("sgd", values)
    row("sgd_momentum", state("momentum_buffer"))
    values, state = run(lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.75, nesterov=True))
    row("nesterov", values)
    row("nesterov_momentum", state("momentum_buffer"))
    values, state = run(lambda groups: torch.optim.RMSprop(groups, lr=1, alpha=0.75, eps=0.0625, momentum=0.5))
    row("rmsprop", values)
    row("rmsprop_mean_square", state("square_avg"))
    row("rmsprop_momentum", state("momentum_buffer"))
    values, state = run(lambda groups: torch.optim.Adam(groups, lr=1, betas=(0.875, 0.9375), eps=0.03125))
    row("adam", values)
    row("adam_exp_avg", state("exp_avg"))
    row("adam_exp_avg_sq", state("exp_avg_sq"))
    values, state = run(lambda groups: torch.optim.AdamW(groups, lr=1, betas=(0.875, 0.9375), eps=1e-8))
    row("adamw", values)
    row("adamw_exp_avg", state("exp_avg"))
    row("adamw_exp_avg_sq", state("exp_avg_sq"))
    print("\n}  // namespace lockstep::test::pytorch\n// clang-format on")


main()
