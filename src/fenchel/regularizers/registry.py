from __future__ import annotations

import re
from typing import Any, TypeVar

from fenchel._checks import FenchelError
from fenchel.regularizers._base import Regularizer

#: Every regularizer by name, as :func:`fenchel.fenchel_young_loss` takes them.
REGULARIZERS: dict[str, type[Regularizer]] = {}

_Omega = TypeVar("_Omega", bound=type[Regularizer])


def listed(omega: _Omega) -> _Omega:
    """Enter a class into :data:`REGULARIZERS`: ``FusedLasso`` as ``"fused_lasso"``."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", omega.__name__).lower()
    REGULARIZERS[name] = omega
    return omega


def as_regularizer(name: str, omega: Any) -> Regularizer:
    """A regularizer as it is, or the one of a name, with its default parameter."""
    if isinstance(omega, Regularizer):
        return omega
    if isinstance(omega, str):
        if omega in REGULARIZERS:
            return REGULARIZERS[omega]()
        known = ", ".join(repr(key) for key in sorted(REGULARIZERS))
        raise FenchelError(f"{name}: expected `omega` to be one of {known}, but got {omega!r}.")
    raise FenchelError(
        f"{name}: expected `omega` to be a Regularizer such as fy.Tsallis(1.5), or the name of "
        f"one, but got {type(omega).__name__}."
    )
