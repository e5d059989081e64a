"""What turns scores into attention weights, by name: any map, or a structure over the source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch.nn import Module

from fenchel import nn
from fenchel._checks import FenchelError
from fenchel.maps.declaration import MAPS, Map
from fenchel.models._structured_attention import structured_attention


def _map(name: str, text: str | None) -> Module:
    return nn.normalizer(name if text is None else f"{name}:{text}")


def _sums_to_one(declared: Map) -> bool:
    """Whether the weights of every row are a distribution: a budget's are not."""
    return declared.argument is None or not declared.argument.up_to_entries


NORMALIZERS: dict[str, Callable[[str | None], Module]] = {
    **{name: partial(_map, name) for name in sorted(MAPS) if _sums_to_one(MAPS[name])},
    "structured": structured_attention,
}
"""Name to a builder of the module, given what follows the colon. A new map has its row at once.

Global attention calls the module with scores (B, T, S) and a mask (B, 1, S) or None; attention of
heads calls it with scores (B, heads, L, S) only, which are -inf where nothing may be seen.
"""


def normalizer(spec: str) -> Module:
    """What a spec names, as a module from scores (…, S) to weights along the last axis.

    Args:
        spec: a map, as :func:`fenchel.nn.normalizer` takes it, or ``"structured:subsets[:k]"`` or
            ``"structured:chain"`` (global attention only).

    Returns:
        A module that is called with ``(scores, mask=None)``, mask being True where mass may go.

    Example:
        >>> from fenchel.models import normalizer
        >>> normalizer("entmax:2")(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])
    """
    if not isinstance(spec, str):
        raise FenchelError(
            f"normalizer: expected a text such as 'entmax:1.5', but got {type(spec).__name__}."
        )
    name, colon, text = spec.partition(":")
    if name not in NORMALIZERS:
        raise FenchelError(
            f"normalizer: expected one of {', '.join(NORMALIZERS)}, maybe with a parameter after a "
            f"colon, but got {spec!r}."
        )
    return NORMALIZERS[name](text if colon else None)
