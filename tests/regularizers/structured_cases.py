"""Small instances of every structure, with all their members: what drives the shared tests."""

from __future__ import annotations

from fenchel.testing._cases import blocks, rebuild
from tests.structures.registry import CASES, every_case

__all__ = ["CASES", "blocks", "every_case", "rebuild"]
