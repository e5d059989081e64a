"""The likeliest token at each step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import check_at_least, check_count
from fenchel.decoding._certificate import Scoring
from fenchel.decoding._model import StepModel, check_model, check_source
from fenchel.decoding._result import Record, SearchResult
from fenchel.decoding._support import list_support
from fenchel.decoding._trace import Prefix, StepRow

_REMEDY = "use beam_search"


@torch.no_grad()
def greedy_search(
    model: StepModel,
    source: Tensor,
    source_lengths: Tensor,
    *,
    max_length: int = 100,
    trace: bool = True,
    most: int | None = 32,
    bos: int = 1,
    eos: int = 2,
) -> list[SearchResult]:
    """Take the likeliest token at each step (of equals the one with the smallest id).

    It is *exhaustive* if every step had one token with p > 0, and *proved best* if the output is at
    least as likely as every prefix that was not followed. It is not :func:`beam_search` with
    ``beam=1``, which also keeps the outputs that it could have ended with on its way.

    Args:
        model: in evaluation mode; see :class:`StepModel`.
        source: ``(B, S)`` int64, padded.
        source_lengths: ``(B,)``.
        max_length: the greatest length of an output, EOS not counted.
        trace: whether to return the output's :class:`Trace`.
        most: how many tokens a trace lists at a step; None: all with p > 0.
        bos: the token that is fed first.
        eos: the token that ends an output.

    Returns:
        One :class:`SearchResult` with one hypothesis a source.

    Example:
        >>> from fenchel.decoding import Bigram
        >>> model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 0.5, 2: 0.5}})
        >>> source, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
        >>> (result,) = greedy_search(model, source, lengths)
        >>> result.best.tokens, result.best.probability, result.certificate.kind
        ((3,), 0.375, 'proved best')
    """
    name = "greedy_search"
    check_model(name, model)
    lengths = check_source(name, source, source_lengths)
    most = check_count(name, "most", most, "all tokens with p > 0")
    scoring = Scoring(0.0, check_at_least(name, "max_length", max_length, 0))
    records = [Record(scoring, 1, length) for length in lengths]
    if not records:
        return []

    state = model.start(source, source_lengths)
    live = [(place, Prefix.root(bos)) for place in range(len(records))]
    listed = None if trace and most is None else max(2, most or 0 if trace else 0)
    while live:
        fed = torch.tensor([prefix.token for _, prefix in live], device=source.device)
        step = model.step(state, fed)
        support = list_support(name, step.probabilities, len(live), listed)
        attention = None if step.attention is None or not trace else step.attention.cpu()
        starts = support.starts[:-1]
        tokens, best = support.tokens[starts].tolist(), support.probabilities[starts].tolist()
        # Where a row lists one token only, what stands after it belongs to another row.
        after = (starts + 1).clamp(max=support.tokens.numel() - 1)
        second = torch.where(support.size > 1, support.probabilities[after], 0.0).tolist()
        following, rows = [], []
        for row, (place, prefix) in enumerate(live):
            record = records[place]
            record.expanded += 1
            if trace:
                prefix.said = StepRow(support, row, attention)
            if second[row] > 0:
                other = prefix.log_probability + math.log(second[row])
                record.missed.pruned = max(record.missed.pruned, other)
            log_probability = prefix.log_probability + math.log(best[row])
            if tokens[row] == eos:
                record.finish(prefix.end(eos, best[row], log_probability))
            elif prefix.length == max_length:
                record.missed.cut = log_probability
                record.unfinished.append(prefix)
            else:
                following.append((place, prefix.then(tokens[row], best[row], log_probability)))
                rows.append(row)
        live = following
        if live:
            state = step.state.select(torch.tensor(rows, device=source.device))
    return [record.result(most, _REMEDY) for record in records]
