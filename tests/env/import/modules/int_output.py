# REFUSED: its output has dtype int64
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (x > 0).sum(1)


def get_inputs():
    return [torch.randn(8, 16)]
