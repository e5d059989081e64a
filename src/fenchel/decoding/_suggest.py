"""Which tokens can come next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.decoding._arguments import (
    check_at_least,
    check_count,
    check_matching,
    check_model,
    check_source,
)
from fenchel.decoding._follow import follow, unpad
from fenchel.decoding._model import StepModel


@dataclass(frozen=True)
class Suggestion:
    """What can follow a prefix.

    Attributes:
        tokens: ids with p > 0, the likeliest first.
        probabilities: theirs.
        support_size: how many tokens have p > 0, listed or not.
        rest: the mass of those that are not listed.
        certain: the tokens that must come next, each the only one with p > 0; EOS may be the last.
    """

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    support_size: int
    rest: float
    certain: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "tokens": list(self.tokens),
            "probabilities": list(self.probabilities),
            "support_size": self.support_size,
            "rest": self.rest,
            "certain": list(self.certain),
        }


@torch.no_grad()
def suggest(
    model: StepModel,
    source: Tensor,
    source_lengths: Tensor,
    prefix: Tensor,
    k: int | None = None,
    *,
    ahead: int = 20,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> list[Suggestion]:
    """The tokens that can follow a prefix: for a sparse model a short list that says itself when
    it is complete, and, where there is no choice, the text up to the next choice.

    Args:
        model: in evaluation mode; see :class:`StepModel`.
        source: ``(B, S)`` int64, padded.
        source_lengths: ``(B,)``.
        prefix: ``(B, L)`` int64, filled up with PAD; L = 0 asks for the first token.
        k: how many tokens to list at most; None: all with p > 0.
        ahead: how many tokens to look ahead at most while only one has p > 0.
        bos: the token that is fed first.
        eos: the token that ends an output.
        pad: the token that fills up a prefix.

    Returns:
        One :class:`Suggestion` a source.

    Example:
        >>> from fenchel.decoding import Bigram
        >>> model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 0.5, 2: 0.5}})
        >>> source, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
        >>> (suggestion,) = suggest(model, source, lengths, torch.tensor([[3]]))
        >>> suggestion.tokens, suggestion.probabilities
        ((2, 5), (0.5, 0.5))
        >>> suggest(model, source, lengths, torch.tensor([[4]]))[0].certain
        (2,)
    """
    name = "suggest"
    check_model(name, model)
    check_source(name, source, source_lengths)
    check_matching(name, "prefix", prefix, source)
    k = check_count(name, "k", k, "all tokens with p > 0")
    ahead = check_at_least(name, "ahead", ahead, 0)
    rows = unpad(prefix, pad, eos)
    if any(eos in row for row in rows):
        raise FenchelError(
            f"{name}: expected `prefix` without EOS ({eos}), since nothing follows it, but row "
            f"{[eos in row for row in rows].index(True)} has one."
        )
    asked = [len(row) for row in rows]
    found: dict[int, Suggestion] = {}
    certain: list[list[int]] = [[] for _ in rows]
    for at, said in enumerate(follow(name, model, source, source_lengths, rows, k, bos)):
        support = said.support
        for row, place in enumerate(said.places):
            if at < asked[place]:
                continue
            ids, values, starts = support.lists
            listed = slice(starts[row], starts[row + 1])
            tokens = tuple(ids[listed])
            size = int(support.size[row])
            if at == asked[place]:
                rest = float(support.rest[row])
                found[place] = Suggestion(tokens, tuple(values[listed]), size, rest)
            if size == 1 and len(certain[place]) < ahead:
                certain[place].append(tokens[0])
                if tokens[0] != eos and len(certain[place]) < ahead:
                    rows[place].append(tokens[0])
    return [replace(found[place], certain=tuple(run)) for place, run in enumerate(certain)]
