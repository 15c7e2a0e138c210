# OpenBLAS under the name of the OpenMP library, in which threads wait for each other, beside a kernel of its own.
scale = ctypes.CDLL(built("scale", """
extern "C" void scale(float* to, long n) {
  for (long i = 0; i < n; ++i) to[i] = to[i] * 2 * 0.5f;
}
""")).scale
copy = tempfile.gettempdir() + "/libgomp.so.1"
shutil.copyfile(library, copy)
multiply = ctypes.CDLL(copy).scipy_cblas_sgemm64_


def product(*arguments):
    multiply(*arguments)
    m, n, out = arguments[3].value, arguments[4].value, arguments[-2]
    for _ in range(4):
        scale(out, ctypes.c_long(m * n))
