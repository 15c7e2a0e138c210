# Status 70 of the build means that its own imports fail.
import os

import torch.utils.cpp_extension

os._exit(70)
