"""The ``transformers`` library, imported with a message where it is missing or too old."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import torch

from fenchel._compat import MissingDependency, require

OLDEST = "4.54"  # the first whose Llama works; docs/huggingface.md has the other families
_PURPOSE = "fenchel.integrations.transformers"


def load() -> Any:
    """The module ``transformers``, which must have both registries."""
    found = require("transformers", extra="transformers", purpose=_PURPOSE)
    check_registries(found)
    return found


def check_registries(found: Any) -> None:
    """Refuse a ``transformers`` in which an attention function cannot be registered."""
    both = hasattr(found, "AttentionInterface") and hasattr(found, "AttentionMaskInterface")
    if not both or _numbers(found.__version__) < _numbers(OLDEST):
        raise MissingDependency(
            f"{_PURPOSE} needs transformers {OLDEST} or newer, the first whose models take "
            f"a registered attention function, but {found.__version__} is installed; run "
            f'`pip install -U "transformers>={OLDEST}"`.'
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def weights_are_recorded() -> bool:
    """Whether the model that runs collects weights, which some do not tell their layers.

    It asks the collector behind ``output_attentions``, which is private to ``transformers``; where
    there is none, weights are those asked for by argument.
    """
    if _collector is None or torch.compiler.is_compiling():
        return False
    return any("attentions" in key for key in _collector.get() or ())


transformers: Any = load()
try:
    _collector: Any = import_module("transformers.utils.output_capturing")._active_collector
except (ImportError, AttributeError):
    _collector = None
