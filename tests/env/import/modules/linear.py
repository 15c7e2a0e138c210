# A weight, a bias, a learnt gain that starts at 1, and a mask whose values matter.
# HAS: def forward(x, mask, gain, fc_weight, fc_bias):
# HAS: distribution = "stored"
# HAS: reduction = "96"
# HAS: scale = 0.125
# HAS: ^init = \[64, 32\]
# HAS: ^arguments = \["inputs", "outputs"\]
# HAS: ^fc_weight = "fc.weight"
import torch
import torch.nn as nn

rows = 128


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)
        self.register_buffer("mask", torch.tril(torch.ones(outputs, outputs)))
        self.gain = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        return torch.nn.functional.gelu(self.fc(x)) @ self.mask * self.gain + x.size(0)


def get_inputs():
    return [torch.randn(rows, 64) * 2 + 1]


def get_init_inputs():
    return [64, 32]
