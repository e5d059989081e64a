from __future__ import annotations

from typing import Any

from fenchel._checks import FenchelError, check_alpha
from fenchel.integrations.transformers._alpha import set_alpha
from fenchel.integrations.transformers._library import transformers

_MEANING = "(1 is softmax, 2 is sparsemax)"


class AlphaAnnealing(transformers.TrainerCallback):
    r"""Callback of ``Trainer`` that moves the attention's :math:`\alpha` in a straight line.

    .. math:: \alpha_t = \mathit{start} + (\mathit{end} - \mathit{start}) \,
        \min(1, \max(0, t - \mathit{delay}) / \mathit{steps})

    From 1, a softmax model computes what it did before, and ends up sparse. :math:`t` counts the
    optimizer's steps and is the trainer's own, so training resumes where it was.

    Args:
        steps: over how many steps.
        start: :math:`\alpha` before.
        end: :math:`\alpha` after.
        delay: after how many steps it begins.

    The model must have ``attn_implementation="entmax"``.

    Example:
        >>> from fenchel.integrations.transformers import AlphaAnnealing
        >>> annealing = AlphaAnnealing(steps=100)
        >>> [annealing.alpha_at(step) for step in (0, 50, 100, 1000)]
        [1.0, 1.25, 1.5, 1.5]
    """

    def __init__(self, steps: int, start: float = 1.0, end: float = 1.5, delay: int = 0) -> None:
        self.steps = _check_count("steps", steps, 1)
        self.start = check_alpha("AlphaAnnealing", start, _MEANING, label="start")
        self.end = check_alpha("AlphaAnnealing", end, _MEANING, label="end")
        self.delay = _check_count("delay", delay, 0)

    def alpha_at(self, step: int) -> float:
        """The alpha of the step that follows ``step`` others."""
        share = min(1.0, max(0, step - self.delay) / self.steps)
        return self.start + (self.end - self.start) * share

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set alpha before the first step, or where training resumes."""
        set_alpha(kwargs["model"], self.alpha_at(state.global_step))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the alpha of this step."""
        set_alpha(kwargs["model"], self.alpha_at(state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model with the alpha that all steps lead to."""
        set_alpha(kwargs["model"], self.alpha_at(state.global_step))


def _check_count(label: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FenchelError(
            f"AlphaAnnealing: expected `{label}` to be an int of at least {least}, but got "
            f"{value!r}."
        )
    return value
