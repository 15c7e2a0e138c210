# REFUSED: draws random numbers (Python
import random

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * random.random()


def get_inputs():
    return [torch.randn(8, 8)]
