"""What the pictures share: axes, colours, and checks of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._compat import require

GREY = "#d9d9d9"  # exactly 0, in every picture
INK = "#333333"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#B8568F", "#E69F00", "#56B4E9")  # Okabe and Ito's


def axes_of(name: str, ax: Any, size: tuple[float, float] | None = None) -> Any:
    """The axes given, or those of a new figure of a size in inches."""
    figure = require("matplotlib.figure", extra="plot", purpose=name)
    if ax is not None:
        return ax
    return figure.Figure(figsize=size, layout="constrained").subplots()


def check_matrix(
    name: str, weights: Any, shape: str, label: str = "weights", row: bool = False
) -> Tensor:
    """Weights as a float64 matrix on the CPU; with ``row``, a vector is a matrix of one row."""
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        raise FenchelError(
            f"{name}: expected `{label}` to be a floating tensor, but got "
            f"{weights.dtype if isinstance(weights, Tensor) else type(weights).__name__}."
        )
    values = weights.detach().cpu().double()
    values = values[None] if row and values.dim() == 1 else values
    if values.dim() != 2 or values.numel() == 0:
        raise FenchelError(
            f"{name}: expected `{label}` of shape {shape}, but got {tuple(weights.shape)}."
        )
    return values


def check_mean(name: str, weights: Any, shape: str, label: str = "weights") -> Tensor:
    """A matrix of means: finite and not below 0, up to rounding."""
    values = check_matrix(name, weights, shape, label)
    if not bool(((values >= -1e-6) & (values < float("inf"))).all()):
        raise FenchelError(
            f"{name}: expected `{label}` to hold means of structures, numbers of at least 0, but "
            f"one is {float(values[~((values >= -1e-6) & (values < float('inf')))][0]):g}; draw "
            "what `predict` gives, not scores."
        )
    return values.clamp(min=0)


def check_names(name: str, label: str, names: Sequence[str] | None, count: int) -> None:
    """As many names as there are things."""
    if names is not None and len(names) != count:
        raise FenchelError(f"{name}: expected {count} names in `{label}`, but got {len(names)}.")


def written(weight: float) -> str:
    """A weight in two digits; a whole number only if it is one."""
    if weight in (0, 1):
        return str(int(weight))
    return f"{min(max(weight, 0.01), 0.99):.2f}" if 0 < weight < 1 else f"{weight:.2f}"


def bare(axes: Any) -> None:
    """Take off ticks and frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def shades(values: Tensor, cmap: str, top: float) -> Any:
    """Colours (..., 4) of weights, the darkest for ``top``; grey is exactly 0."""
    import matplotlib
    from matplotlib.colors import to_rgba

    colours = matplotlib.colormaps[cmap]((0.15 + 0.85 * values / max(top, 1e-12)).numpy())
    colours[(values == 0).numpy()] = to_rgba(GREY)
    return colours
