# REFUSED: draws random numbers (Python's or numpy's) (numpy_random.py, line 10: return float(numpy.random.uniform(1, 2)))
import numpy
import torch


class Model(torch.nn.Module):
    """The line is that of the file's own function."""

    def scale(self):
        return float(numpy.random.uniform(1, 2))

    def forward(self, x):
        return x * self.scale()


def get_inputs():
    return [torch.randn(8, 8)]
