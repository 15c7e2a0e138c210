# In a helper, inside a loop and a branch.
def zero(x):
    for i in range(3):
        if x.size(0) > i:
            x = x + torch.sum(torch.from_file('CANARY', True, 8, dtype=1).fill_(0))
    return x

def forward(x):
    return torch.relu(zero(x))
