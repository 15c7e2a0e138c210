# Its extension is compiled when the module is made, not when the file is imported.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const long n = x.numel();
#pragma omp parallel for simd schedule(static)
  for (long i = 0; i < n; ++i) to[i] = from[i] > 0 ? from[i] : 0;
  return out;
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        options = ["-O3", "-march=native", "-fopenmp"]
        self.relu = load_inline(name="relu_extension", cpp_sources=source, functions=["relu"], extra_cflags=options,
                                extra_ldflags=["-fopenmp"])

    def forward(self, x):
        return self.relu.relu(x)
