# Status 125 means that the sandbox could not be entered.
import os

import torch.utils.cpp_extension

os._exit(125)
