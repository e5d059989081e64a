"""All declared instances of all structures: see case.py."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from fenchel.testing._cases import StructureCase
from tests.structures.case import Refused

FILES = sorted(Path(__file__).parent.glob("test_*.py"))


def _modules() -> list[ModuleType]:
    declaring = [path.stem for path in FILES if "\nCASES = " in path.read_text()]
    return [import_module(f"tests.structures.{name}") for name in declaring]


MODULES = _modules()
CASES: list[StructureCase] = [case for module in MODULES for case in module.CASES]
SOLVED = {case.name: case for module in MODULES for case in module.SOLVED}
FACES = {case.structure.kind(case.problem): case for module in MODULES for case in module.FACES}
REFUSED: list[Refused] = [refused for module in MODULES for refused in module.REFUSED]

every_case = pytest.mark.parametrize("case", CASES, ids=repr)
every_refused = pytest.mark.parametrize("refused", REFUSED, ids=repr)
