"""The command line: parse, call, print."""

from fenchel.cli._main import main

__all__ = ["main"]
