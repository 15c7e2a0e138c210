# Remembers the answer by all of the input's content, which costs more than it saves: no input comes twice.
import hashlib
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.answers = {}

    def forward(self, x):
        key = hashlib.blake2b(x.cpu().numpy()).digest()
        if key not in self.answers:
            self.answers = {key: torch.relu(x)}
        return self.answers[key]
