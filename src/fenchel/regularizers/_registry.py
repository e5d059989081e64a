from __future__ import annotations

from typing import Any

from fenchel._checks import FenchelError
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers._fused_lasso import FusedLasso
from fenchel.regularizers._gini import Gini
from fenchel.regularizers._norm import Norm
from fenchel.regularizers._oscar import Oscar
from fenchel.regularizers._renyi import Renyi
from fenchel.regularizers._shannon import Shannon
from fenchel.regularizers._squared import Squared
from fenchel.regularizers._squared_norm import SquaredNorm
from fenchel.regularizers._tsallis import Tsallis
from fenchel.regularizers._zero import Zero

#: Every regularizer by name, as :func:`fenchel.fenchel_young_loss` takes them.
REGULARIZERS: dict[str, type[Regularizer]] = {
    "fused_lasso": FusedLasso,
    "gini": Gini,
    "norm": Norm,
    "oscar": Oscar,
    "renyi": Renyi,
    "shannon": Shannon,
    "squared": Squared,
    "squared_norm": SquaredNorm,
    "tsallis": Tsallis,
    "zero": Zero,
}


def as_regularizer(name: str, omega: Any) -> Regularizer:
    """A regularizer as it is, or the one of a name, with its default parameter."""
    if isinstance(omega, Regularizer):
        return omega
    if isinstance(omega, str):
        if omega in REGULARIZERS:
            return REGULARIZERS[omega]()
        known = ", ".join(repr(key) for key in REGULARIZERS)
        raise FenchelError(f"{name}: expected `omega` to be one of {known}, but got {omega!r}.")
    raise FenchelError(
        f"{name}: expected `omega` to be a Regularizer such as fy.Tsallis(1.5), or the name of "
        f"one, but got {type(omega).__name__}."
    )
