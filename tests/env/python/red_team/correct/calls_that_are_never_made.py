# Calls of load_inline that would not compile, and are never made, beside one that is.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = "torch::Tensor relu(torch::Tensor x) {"
source += " return torch::relu(x); }"
if torch.cuda.is_available():
    other = load_inline(name="never", cpp_sources="this is no C++", functions=["f"])


def never(source="nor is this"):
    return load_inline(name="never_called", cpp_sources="nor is this", functions=["f"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = load_inline(name="relu", cpp_sources="torch::Tensor relu(torch::Tensor x) { return torch::relu(x); }",
                                  functions=["relu"])

    def forward(self, x):
        return self.kernel.relu(x)
