"""Feeding given tokens to a model, many sources at once: what it says along them and after them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_at_least, check_count
from fenchel.decoding._model import StepModel, check_matching, check_model, check_source
from fenchel.decoding._support import Support, list_support
from fenchel.decoding._trace import StepRow, Trace, TraceStep


@dataclass(frozen=True)
class ForcedStep:
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
) -> Iterator[ForcedStep]:
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
        yield ForcedStep(places, support, step.probabilities, attention)
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


@torch.no_grad()
def forced_decoding(
    model: StepModel,
    source: Tensor,
    source_lengths: Tensor,
    target: Tensor,
    *,
    most: int | None = 32,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> list[Trace]:
    """Lead a model along given outputs, and record what it holds possible at each step.

    A token of the target with p = 0 is recorded as such, and the trace goes on after it.

    Args:
        model: in evaluation mode; see :class:`StepModel`.
        source: ``(B, S)`` int64, padded.
        source_lengths: ``(B,)``.
        target: ``(B, T)`` int64: tokens, EOS, then PAD. A row without EOS gives a trace that is not
            finished.
        most: how many tokens a step lists; None: all with p > 0.
        bos: the token that is fed first.
        eos: the token that ends a target.
        pad: the token that fills up a target.

    Returns:
        One :class:`Trace` per source.

    Example:
        >>> from fenchel.decoding import Bigram
        >>> model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 0.5, 2: 0.5}})
        >>> source, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
        >>> (trace,) = forced_decoding(model, source, lengths, torch.tensor([[4, 5, 2]]))
        >>> [(step.support, step.probability) for step in trace.steps]
        [((3, 4), 0.25), ((2,), 0.0), ((2,), 1.0)]
        >>> trace.log_probability
        -inf

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """
    name = "forced_decoding"
    check_model(name, model)
    lengths = check_source(name, source, source_lengths)
    check_matching(name, "target", target, source)
    most = check_count(name, "most", most, "all tokens with p > 0")
    rows = unpad(target, pad, eos)
    steps: list[list[TraceStep]] = [[] for _ in rows]
    # What follows the last token is not asked for.
    inputs = [row[:-1] for row in rows]
    for at, said in enumerate(follow(name, model, source, source_lengths, inputs, most, bos)):
        vocabulary = said.probabilities.shape[1]
        for row, place in enumerate(said.places):
            if not rows[place]:
                continue
            token = rows[place][at]
            if not 0 <= token < vocabulary:
                raise FenchelError(
                    f"{name}: expected tokens between 0 and {vocabulary - 1}, the model's "
                    f"vocabulary, but got {token}."
                )
            probability = min(float(said.probabilities[row, token]), 1.0)
            here = StepRow(said.support, row, said.attention)
            steps[place].append(here.take(token, probability, most, lengths[place]))
    traces = []
    for tokens, taken in zip(rows, steps, strict=True):
        finished = tokens[-1:] == [eos]
        traces.append(Trace(tuple(tokens[:-1] if finished else tokens), tuple(taken), finished))
    return traces


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
        One :class:`Suggestion` per source.

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
