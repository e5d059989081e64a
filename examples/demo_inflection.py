"""Inflection with exact zeros: ``make demo``, or ``python examples/demo_inflection.py``.

The same as ``fenchel demo``; `--help` lists its options.
"""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    sys.argv[:1] = ["fenchel", "demo"]  # before the import: the command line prepares for torch
    runpy.run_module("fenchel", run_name="__main__")
