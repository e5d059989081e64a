"""``python -m fenchel``: the command line, as ``torchrun -m fenchel`` starts it on every rank."""

import sys

from fenchel.cli import main

if __name__ == "__main__":
    sys.exit(main())
