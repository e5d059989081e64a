"""Several models as one, by the average of their probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.decoding._model import StepModel, check_model


@dataclass(frozen=True)
class EnsembleState:
    """One state for each model."""

    states: tuple[Any, ...]

    def select(self, index: Tensor) -> EnsembleState:
        """The rows ``index`` of every state."""
        return EnsembleState(tuple(state.select(index) for state in self.states))


@dataclass(frozen=True)
class EnsembleStep:
    """The averages of one step."""

    probabilities: Tensor
    state: EnsembleState
    attention: Tensor | None


class Ensemble:
    r"""Models with one vocabulary, averaged at each step: a model again.

    .. math:: p(y_t \mid y_{<t}) = \frac1M \sum_{m=1}^M p_m(y_t \mid y_{<t})

    Averages of probabilities, not of their logarithms, under which one model's zero would veto the
    others: a token has p = 0 only if it has for all. Attention is averaged where all models
    give weights of the same shape, and is None otherwise.

    Args:
        models: at least one, each as :class:`StepModel` says.

    Example:
        >>> from fenchel.decoding import Bigram, beam_search
        >>> both = Ensemble([Bigram({1: {3: 1.0}}), Bigram({1: {2: 1.0}}, vocabulary=4)])
        >>> source, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
        >>> (result,) = beam_search(both, source, lengths, nbest=None)
        >>> [(found.tokens, found.probability) for found in result.hypotheses]
        [((), 0.5), ((3,), 0.5)]
    """

    def __init__(self, models: Sequence[StepModel]) -> None:
        self.models = tuple(models)
        if not self.models:
            raise FenchelError("Ensemble: expected at least one model, but got none.")
        for model in self.models:
            check_model("Ensemble", model)

    @property
    def training(self) -> bool:
        """Whether one of the models is in training mode."""
        return any(bool(getattr(model, "training", False)) for model in self.models)

    def parameters(self) -> Iterator[Tensor]:
        """The parameters of those models that are modules, one model after the other."""
        for model in self.models:
            if isinstance(model, torch.nn.Module):
                yield from model.parameters()

    def start(self, source: Tensor, source_lengths: Tensor) -> EnsembleState:
        """Every model's start."""
        return EnsembleState(tuple(model.start(source, source_lengths) for model in self.models))

    def step(self, state: EnsembleState, tokens: Tensor) -> EnsembleStep:
        """Every model's step, averaged."""
        pairs = zip(self.models, state.states, strict=True)
        steps = [model.step(each, tokens) for model, each in pairs]
        sizes = [step.probabilities.shape[-1] for step in steps]
        if len(set(sizes)) > 1:
            raise FenchelError(
                f"Ensemble: expected models with one vocabulary, but theirs have {sizes} tokens."
            )
        rows = [step.attention for step in steps]
        given = [row for row in rows if row is not None]
        attention = None
        if len(given) == len(rows) and len({row.shape for row in given}) == 1:
            attention = torch.stack(given).mean(0)
        return EnsembleStep(
            torch.stack([step.probabilities for step in steps]).mean(0),
            EnsembleState(tuple(step.state for step in steps)),
            attention,
        )
