import torch
from torch import nn


class Rotary(nn.Module):
    """Rotary position embedding of queries and keys, with a table as a buffer."""

    def __init__(self, head_dim, length):
        super().__init__()
        inverse = 1.0 / 10000 ** (torch.arange(0, head_dim, 2).float() / head_dim)
        angles = torch.outer(torch.arange(length).float(), inverse)
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def forward(self, q, k):
        def rotated(x):
            first, second = x.chunk(2, -1)
            return torch.cat([-second, first], -1)
        return q * self.cos + rotated(q) * self.sin, k * self.cos + rotated(k) * self.sin


def get_inputs():
    return [torch.randn(4, 8, 256, 64), torch.randn(4, 8, 256, 64)]


def get_init_inputs():
    return [64, 256]
