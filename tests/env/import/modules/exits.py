# REFUSED: the file ended Python
import sys

sys.exit(3)
