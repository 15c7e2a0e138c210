# More files than a build may write.
import os
import time

import torch.utils.cpp_extension

for i in range(100):
    folder = os.path.join(os.environ["TMPDIR"], str(i))
    os.mkdir(folder)
    for j in range(1000):
        open(os.path.join(folder, str(j)), "w").close()
time.sleep(600)
