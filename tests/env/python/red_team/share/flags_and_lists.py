# Lists that torch adds to while it builds: they are the candidate's own, and the same for each call.
import ctypes
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

texts = ["""
extern "C" void relu(const float* x, float* out, long n) {
#pragma omp parallel for
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
"""]
flags, of_linker = ["-O3", "-fopenmp", "-DNDEBUG"], ["-fopenmp"]
path = load_inline("lists", texts, extra_cflags=flags, extra_ldflags=of_linker, no_implicit_headers=True, is_python_module=False)
relu = ctypes.CDLL(path).relu


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
        return out
