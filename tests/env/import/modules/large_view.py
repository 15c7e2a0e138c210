# REFUSED: its output `out1` is a view of its own parameter `weight`: the two share their memory
import torch


class Model(torch.nn.Module):
    """Too large to be called here: what the trace shows."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(40_000, 40_000))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight), self.weight[0]


def get_inputs():
    return [torch.randn(4, 40_000)]
