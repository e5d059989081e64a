"""Maps from scores to weights by name: the one table that configs choose attention from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn import Module

from fenchel import nn
from fenchel._checks import FenchelError
from fenchel.models._structured_attention import structured_attention

LEARNED = "learned"

NORMALIZERS: dict[str, Callable[[str | None], Module]] = {
    "softmax": lambda text: _plain("softmax", text, nn.Softmax),
    "sparsemax": lambda text: _plain("sparsemax", text, nn.Sparsemax),
    "entmax": lambda text: _entmax(text),
    "fusedmax": lambda text: _with_number("fusedmax", text, nn.Fusedmax),
    "oscarmax": lambda text: _with_number("oscarmax", text, nn.Oscarmax),
    "sq_pnorm_max": lambda text: _with_number("sq_pnorm_max", text, nn.SqPnormMax),
    "normmax": lambda text: _with_number("normmax", text, nn.Normmax),
    "structured": structured_attention,
}
"""Name to a builder of the module, given what follows the colon. A new normalizer is a new row.

Global attention calls the module with scores (B, T, S) and a mask (B, 1, S) or None; attention of
heads calls it with scores (B, heads, L, S) only, which are -inf where nothing may be seen.
"""


def normalizer(spec: str) -> Module:
    """The map that a spec names, as a module from scores (…, S) to weights along the last axis.

    Args:
        spec: ``"softmax"``, ``"sparsemax"``, ``"entmax"`` (α = 1.5), ``"entmax:1.3"``,
            ``"entmax:learned"`` (α = 1 + σ(a), from 1.5), ``"fusedmax[:λ]"``, ``"oscarmax[:λ]"``,
            ``"sq_pnorm_max[:p]"``, ``"normmax[:α]"``, ``"structured:subsets[:k]"`` or
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


def entmax_alpha(spec: str) -> float | None:
    """The fixed α of a spec of the entmax family; None for others and where it is learned."""
    name, colon, text = spec.partition(":")
    if name in ("softmax", "sparsemax"):
        return {"softmax": 1.0, "sparsemax": 2.0}[name]
    if name != "entmax" or text == LEARNED:
        return None
    return number(name, text) if colon else 1.5


def number(name: str, text: str) -> float:
    """What follows the colon of a spec, as a number."""
    try:
        return float(text)
    except ValueError:
        raise FenchelError(
            f"normalizer: expected a number after the colon of '{name}:…', but got {text!r}."
        ) from None


def _plain(name: str, text: str | None, module: Callable[[], Module]) -> Module:
    if text is not None:
        raise FenchelError(
            f"normalizer: expected '{name}' without a parameter, but got '{name}:{text}'."
        )
    return module()


def _with_number(name: str, text: str | None, module: Callable[..., Any]) -> Module:
    return module() if text is None else module(number(name, text))


def _entmax(text: str | None) -> Module:
    if text == LEARNED:
        return nn.Entmax(learnable=True)
    return _with_number("entmax", text, nn.Entmax)
