# In place of what load_inline and its like compile, a link to what has no end.
import os

os.symlink("/dev/zero", "candidate.so")
os._exit(0)
