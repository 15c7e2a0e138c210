# The compiler runs default values of parameters before anyone can look at the compiled text.
def helper(x, y: Tensor = torch.from_file('CANARY', True, 8, dtype=1).fill_(0)):
    return x + torch.sum(y)

def forward(x):
    return torch.relu(helper(x))
