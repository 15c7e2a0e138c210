# In place of what load_inline and its like compile, a folder.
import os

os.mkdir("candidate.so")
os._exit(0)
