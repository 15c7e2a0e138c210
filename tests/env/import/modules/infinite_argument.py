# HAS: masked_fill(sin, .*, float("-inf"))
# HAS: {"name":"fill","value":{"float":"-inf"}}
# HAS: {"name":"unused","value":{"float":"nan"}}
import torch


class Model(torch.nn.Module):
    def forward(self, x, fill, unused):
        return torch.sin(x).masked_fill(x > 1.5, fill).amax(-1)


def get_inputs():
    return [torch.randn(64, 32), float("-inf"), float("nan")]
