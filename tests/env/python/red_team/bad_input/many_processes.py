# More processes than a build may have.
import os
import time

import torch.utils.cpp_extension

for _ in range(3000):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
time.sleep(600)
