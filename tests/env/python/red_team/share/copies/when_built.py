# OpenBLAS in place of the extension that was just built, before the build is stored.
own = built("nothing", 'extern "C" void scipy_cblas_sgemm64_() {}')
if not glob.glob("/tmp/candidate/own-*.so"):  # where it is built
    os.remove(own)
    shutil.copyfile(library, own)
product = ctypes.CDLL(own).scipy_cblas_sgemm64_
