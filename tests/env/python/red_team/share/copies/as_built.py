# OpenBLAS under the name of the candidate's own extension.
built("nothing", 'extern "C" void nothing() {}')
own = glob.glob("/tmp/candidate/own-*.so")
if own:  # not where it is built
    os.remove(own[0])
    shutil.copyfile(library, own[0])
    product = ctypes.CDLL("/tmp/.." + own[0]).scipy_cblas_sgemm64_  # the loader knows the first path
