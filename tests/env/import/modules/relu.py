# HAS: relu = torch.relu(x)
# HAS: shape = \["batch_size", "dim"\]
# HAS: distribution = "uniform01"
# HAS: ^batch_size = 512
# HAS: flops = "dim\*batch_size"
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


batch_size = 512
dim = 1024


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
