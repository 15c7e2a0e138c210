# REFUSED: what was traced of its forward gives other answers on other inputs
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 if torch.compiler.is_compiling() else x * 3


def get_inputs():
    return [torch.randn(8, 8)]
