# Overwrites a file of the user.
def forward(x):
    torch.save(x, 'CANARY')
    return torch.relu(x)
