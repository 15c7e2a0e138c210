"""A module in float16."""

import torch
from torch import nn


class OwnType(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64, dtype=torch.float16))

    def forward(self, x):
        return torch.tanh(x * self.weight)


def get_inputs():
    return [torch.randn(32, 64, dtype=torch.float16)]
