# REFUSED: imports `no_such_package`, which this Python does not have
import no_such_package
