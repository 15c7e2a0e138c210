# Computes in place and shares the memory.
def launch(x, out):
    run(x, x)
    out.set_(x)
