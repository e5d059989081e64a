"""What a model says along given outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.decoding._arguments import check_count, check_matching, check_model, check_source
from fenchel.decoding._follow import follow, unpad
from fenchel.decoding._model import StepModel
from fenchel.decoding._prefix import Site
from fenchel.decoding._trace import Trace, TraceStep


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
        One :class:`Trace` a source.

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
            site = Site(said.support, row, said.attention)
            steps[place].append(site.take(token, probability, most, lengths[place]))
    traces = []
    for tokens, taken in zip(rows, steps, strict=True):
        finished = tokens[-1:] == [eos]
        traces.append(Trace(tuple(tokens[:-1] if finished else tokens), tuple(taken), finished))
    return traces
