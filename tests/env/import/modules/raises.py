# REFUSED: mat1 and mat2 shapes cannot be multiplied
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(3, 3)


def get_inputs():
    return [torch.randn(8, 8)]
