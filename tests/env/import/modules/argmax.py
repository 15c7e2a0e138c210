# HAS: extreme_dim = 1
# HAS: extreme_is_max = true
import torch


class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.argmax(x, self.dim)


def get_inputs():
    return [torch.randn(16, 64, 8)]


def get_init_inputs():
    return [1]
