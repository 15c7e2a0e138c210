# A graph with its own copies of input and output.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.static = x.clone()
            for _ in range(2):
                torch.relu(self.static * 2.0) * 0.5
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.relu(self.static * 2.0) * 0.5
        self.static.copy_(x)
        self.graph.replay()
        return self.out.clone()
