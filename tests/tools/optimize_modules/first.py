import torch
from torch import nn


class Block(nn.Module):
    """A norm and a gate: parameters, a table that keeps its values, an argument with a default, two outputs."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.scale = nn.Parameter(torch.ones(dim))
        self.register_buffer("table", torch.arange(dim).float().cos())
        self.drop = nn.Dropout(0.1)

    def forward(self, x, factor=2.0):
        y = self.drop(self.norm(x) * self.table)
        gate = torch.sigmoid(x * self.scale) * factor
        for _ in range(4):  # passes over memory that one kernel saves
            gate = (gate * gate + 1.0) * 0.5 - gate.abs() * 0.25
        return {"gated": y * gate, "sum": x + y}


def get_inputs():
    return [torch.randn(64, 96, 256)]


def get_init_inputs():
    return [256]
