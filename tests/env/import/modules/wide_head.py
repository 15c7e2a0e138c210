# Of weights that are too large, the sizes vary that may: not the flattened picture's.
# HAS: sizes.small
# HAS: = 65536
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 64, 3, padding=1)
        self.head = torch.nn.Linear(64 * 32 * 32, 4096)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.convolution(x)), 2)
        return self.head(x.flatten(1))


def get_inputs():
    return [torch.rand(8, 3, 64, 64)]
