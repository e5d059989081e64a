"""Libraries that fenchel can use but does not depend on, each imported where it is first needed."""

from __future__ import annotations

import importlib
from typing import Any


class MissingDependency(ImportError):
    """An optional library is not installed. The message says which, and how to install it."""


def require(module: str, *, extra: str, purpose: str, package: str | None = None) -> Any:
    """Import an optional library, or say in one sentence how to install it.

    Args:
        module: what to import, ``"yaml"`` or ``"safetensors.torch"``.
        extra: the extra of fenchel that installs it.
        purpose: what needs it, the subject of the message's sentence.
        package: its name on PyPI, where that is not the first part of ``module``.

    Example:
        >>> require("math", extra="train", purpose="counting").sqrt(4.0)
        2.0
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        raise MissingDependency(
            f"{purpose} needs {name}, which cannot be imported ({error}); install it with "
            f'`pip install "fenchel[{extra}]"`.'
        ) from error
