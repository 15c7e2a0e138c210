# Weights too large for a small CPU: their sizes vary too.
# HAS: shape = \["N2", "N1"\]
# HAS: N1 = 16384
# HAS: N1 = 2048
# HAS: ^sizes = \["full"\]
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(16384, 16384)

    def forward(self, x):
        return torch.relu(self.wide(x))


def get_inputs():
    return [torch.rand(64, 16384)]
