# A bundle whose header is deeper than a stack; load_inline stands in the text alone.
import os

deep = '{"files": [], "asked": [{"a": ' + "[" * 500_000 + "]" * 500_000 + "}]}"
with open("candidate.so", "w") as out:
    out.write(deep + "\n")
os._exit(0)
