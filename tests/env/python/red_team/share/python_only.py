# Correct, by Python's own arithmetic: neither kernels of its own nor torch's compute.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        read, write = memoryview(x.numpy()).cast("B").cast("f"), memoryview(out.numpy()).cast("B").cast("f")
        for at in range(len(read)):
            write[at] = read[at] if read[at] > 0 else 0.0
        return out
