"""Inflection with exact zeros: ``make demo``, or ``python examples/demo_inflection.py``.

The same as ``fenchel demo``; `--help` lists its options.
"""

from __future__ import annotations

import sys

from fenchel.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
