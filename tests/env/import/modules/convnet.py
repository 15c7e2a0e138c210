# More than 16 parameters come as one dictionary; statistics of the batch need no running ones.
# HAS: def forward(x, p: Dict\[str, Tensor\]):
# HAS: torch.batch_norm(conv2d, p\["layers_1_weight"\], p\["layers_1_bias"\], None, None, True
# HAS: torch.relu_(batch_norm)
# HAS: families = \["matmul", "conv", "norm"
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width in (8, 16, 16):
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)) + nn.functional.adaptive_max_pool2d(x, 1).sum())


def get_inputs():
    return [torch.rand(8, 3, 32, 32)]


def get_init_inputs():
    return []
