# REFUSED: its output `out1` is a view of its own buffer `table`: the two share their memory
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(64).float().cos())

    def forward(self, x):
        part = self.table[:x.shape[1]]
        return x * part, part


def get_inputs():
    return [torch.randn(8, 16)]
