"""Feeding given tokens to a model, many sources at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.decoding._model import StepModel
from fenchel.decoding._support import Support, list_support


@dataclass(frozen=True)
class Followed:
    """One step of the sources that still have tokens: row i is about source ``places[i]``."""

    places: list[int]
    support: Support
    probabilities: Tensor  # (n, V)
    attention: Tensor | None  # (n, S) on the CPU


def follow(
    name: str,
    model: StepModel,
    source: Tensor,
    source_lengths: Tensor,
    rows: list[list[int]],
    most: int | None,
    bos: int,
) -> Iterator[Followed]:
    """Step t says what follows the first t tokens of each row, for the rows that have as many.

    Rows may grow while this runs: a row whose last token was fed leaves the batch.
    """
    places = list(range(len(rows)))
    if not places:
        return
    state = model.start(source, source_lengths)
    fed = [bos] * len(places)
    at = 0
    while places:
        step = model.step(state, torch.tensor(fed, device=source.device))
        support = list_support(name, step.probabilities, len(places), most)
        attention = None if step.attention is None else step.attention.cpu()
        yield Followed(places, support, step.probabilities, attention)
        going = [row for row, place in enumerate(places) if len(rows[place]) > at]
        state = step.state.select(torch.tensor(going, dtype=torch.int64, device=source.device))
        places = [places[row] for row in going]
        fed = [rows[place][at] for place in places]
        vocabulary = step.probabilities.shape[1]
        wrong = [token for token in fed if not 0 <= token < vocabulary]
        if wrong:
            raise FenchelError(
                f"{name}: expected tokens between 0 and {vocabulary - 1}, the model's vocabulary, "
                f"but got {wrong[0]}."
            )
        at += 1


def unpad(rows: Tensor, pad: int, eos: int) -> list[list[int]]:
    """Each row up to its first PAD, or up to EOS and with it."""
    found = []
    for row in rows.tolist():
        tokens = []
        for token in row:
            if token == pad:
                break
            tokens.append(token)
            if token == eos:
                break
        found.append(tokens)
    return found
