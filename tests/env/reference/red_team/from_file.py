# Maps a file of the user and zeroes it.
def forward(x):
    return torch.relu(x) + torch.sum(torch.from_file('CANARY', True, 8, dtype=1).fill_(0))
