"""A norm in float32 whatever the type of its input, and a table."""

import torch
from torch import nn


class KeepsTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(0.1, 1.3, 64))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.table


def get_inputs():
    return [torch.randn(32, 64)]
