# REFUSED: draws random numbers (Python's or numpy's) (python_random.py, line 9: return x * random.random())
import random

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * random.random()


def get_inputs():
    return [torch.randn(8, 8)]
