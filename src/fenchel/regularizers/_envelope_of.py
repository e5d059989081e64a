"""The conjugate and the loss of an Ω as differentiable functions, by the envelope theorem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from fenchel._expansion import step_from
from fenchel.regularizers._envelope import Slopes, envelope

if TYPE_CHECKING:
    from fenchel.regularizers._base import Regularizer


def envelope_of(
    omega: Regularizer, value: Tensor, scores: Tensor, p: Tensor, target: Tensor | None = None
) -> Tensor:
    """``value`` as a function of the scores and of the parameter of Ω, if it has one.

    Args:
        omega: for rows along the last axis.
        value: the conjugate at the scores, or the loss of the target, shape (*rows), no graph.
        scores: shape (*rows, n).
        p: the regularized argmax of the scores, with its graph.
        target: probabilities (*rows, n) for a loss; None for the conjugate.
    """

    def slopes(omega: Regularizer, p: Tensor) -> Slopes:
        residual = p if target is None else p - target
        if omega._parameter is None:
            return residual, None
        own = omega.slope_rows(p)
        return residual, -own if target is None else omega.slope_rows(target) - own

    def middle() -> Slopes:
        half, at = _halfway(omega, scores)
        return slopes(half, half.predict_rows(at))

    residual, slope = slopes(omega, p)
    return envelope(value.to(scores.dtype), scores, residual, omega._parameter, slope, middle)


def _halfway(omega: Regularizer, scores: Tensor) -> tuple[Regularizer, Tensor]:
    """Ω and scores, equal to what they are, with half of the derivatives: see ``envelope``."""
    known, step = step_from(scores)
    if omega._parameter is None:
        return omega, known + 0.5 * step
    fixed, drift = step_from(omega._parameter)
    half = type(omega)(fixed + 0.5 * drift)  # type: ignore[call-arg]
    return half.among(known), known + 0.5 * step
