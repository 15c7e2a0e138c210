import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda = """
#include <torch/extension.h>

__global__ void relu_kernel(const float4* x, float4* out, long n) {
  const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float4 v = x[i];
  out[i] = make_float4(fmaxf(v.x, 0.0f), fmaxf(v.y, 0.0f), fmaxf(v.z, 0.0f), fmaxf(v.w, 0.0f));
}

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const long n = x.numel() / 4;
  relu_kernel<<<(n + 255) / 256, 256>>>((const float4*)x.data_ptr<float>(), (float4*)out.data_ptr<float>(), n);
  return out;
}
"""
extension = load_inline("relu_extension", "torch::Tensor relu(torch::Tensor x);", cuda, functions=["relu"],
                        extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
