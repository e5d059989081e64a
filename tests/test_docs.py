"""The documentation names everything that is public, and its examples are true."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from docs import declared

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = (
    "fenchel",
    "fenchel.maps.declaration",
    "fenchel.nn",
    "fenchel.metrics",
    "fenchel.analysis",
    "fenchel.models",
    "fenchel.decoding",
    "fenchel.runs",
    "fenchel.training",
    "fenchel.tasks",
    "fenchel.solvers",
    "fenchel.estimators",
    "fenchel.testing",
    "fenchel.integrations.entmax",
    "fenchel.integrations.transformers",
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented() -> set[str]:
    """The names that have a directive on a page of the reference."""
    text = "".join(declared.expand(page.read_text()) for page in (ROOT / "docs/api").glob("*.rst"))
    return set(re.findall(r"^\.\. (?:auto\w+|py:module|py:data):: ([\w.]+)", text, re.MULTILINE))


@pytest.mark.parametrize("module", MODULES)
def test_reference_has_every_public_name(module):
    # What the front has too is documented there.
    names = set(importlib.import_module(module).__all__)
    own = names if module == "fenchel" else names - set(importlib.import_module("fenchel").__all__)
    assert {f"{module}.{name}" for name in own} <= documented()


def test_reference_has_only_public_names():
    public = {f"{m}.{name}" for m in MODULES for name in importlib.import_module(m).__all__}
    assert documented() <= public | set(MODULES)


def examples(page: Path) -> str:
    """What stands in ```python blocks; the other lines are blank, so that line numbers stay."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside, line = line == "```python", ""
        lines.append(line if inside else "")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_true(page):
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not failed, "".join(report)
