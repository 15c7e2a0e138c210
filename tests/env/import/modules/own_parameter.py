# REFUSED: its output `out1` is a view of its own parameter `weight`: the two share their memory
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8))

    def forward(self, x):
        return x * self.weight, self.weight


def get_inputs():
    return [torch.randn(8, 8)]
