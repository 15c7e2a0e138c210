import torch.nn as nn
from torch.utils.cpp_extension import load_inline


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = load_inline(name="broken", cpp_sources="int f() { return surely_nobodys_name; }", functions=["f"])

    def forward(self, x):
        return x
