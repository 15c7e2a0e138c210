# REFUSED: keeps something from call to call (self.calls changes)
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2 if self.calls < 2 else x * 3


def get_inputs():
    return [torch.randn(8, 8)]
