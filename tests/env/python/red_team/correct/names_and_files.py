# Extensions whose names differ from process to process, arguments by position, and a source in the current folder.
import os
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load, load_inline

with open("half.cpp", "w") as file:
    file.write("""
#include <torch/extension.h>
torch::Tensor half(torch::Tensor x) { return x * 0.5; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("half", &half); }
""")
os.makedirs("build", exist_ok=True)
half = load(f"half_{os.getpid()}", ["half.cpp"], ["-O1"], build_directory="build")
source = """
#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) { return torch::relu(x + x); }
"""
relu = load_inline(f"relu_{os.getpid()}", source, "", functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return relu.relu(half.half(x))
