# A function that nothing calls.
def never(x):
    return torch.from_file('CANARY', True, 8, dtype=1)

def forward(x):
    return torch.relu(x)
