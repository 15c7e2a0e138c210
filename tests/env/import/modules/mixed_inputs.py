# Numbers become constants; int64 and bool inputs keep their ranges.
# HAS: torch.mul(x, 3.14)
# HAS: dtype = "int64"
# HAS: scale = 16
# HAS: dtype = "bool"
# HAS: distribution = "signs"
# HAS: ^forward = \["x", 3.14, "classes", "keep", "signs"\]
import torch


class Model(torch.nn.Module):
    def forward(self, x, factor, classes, keep, signs):
        table = torch.zeros(16, device=x.device).index_add(0, classes, torch.ones(64))
        x = x.masked_fill(keep, float("-inf")).clamp(min=-1.0)
        return torch.cumsum(x * factor, 1) * table[classes[:16]] + signs


def get_inputs():
    return [torch.randn(256, 16), 3.14, torch.randint(0, 16, (64,)), torch.rand(256, 16) > 0.25,
            torch.randint(0, 2, (16,)).float() * 2 - 1]
