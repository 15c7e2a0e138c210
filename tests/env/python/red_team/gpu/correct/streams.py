# Half of the work on a side stream, joined as torch documents it.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        out = torch.empty_like(x)
        half = x.shape[0] // 2
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            upper = torch.clamp(x[:half], min=0)
            out[:half].copy_(upper)
            upper.record_stream(torch.cuda.current_stream())
        torch.clamp(x[half:], min=0, out=out[half:])
        torch.cuda.current_stream().wait_stream(self.side)
        out.record_stream(self.side)
        return out
