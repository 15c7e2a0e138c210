import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = torch.compile(lambda x: torch.relu(x) + 0.0 * x.mean())

    def forward(self, x):
        return self.relu(x)
