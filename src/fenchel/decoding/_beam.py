"""Beam search over many sources at once, with a proof where there is one."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import check_at_least, check_count
from fenchel.decoding._certificate import check_scoring
from fenchel.decoding._model import StepModel, check_model, check_source
from fenchel.decoding._result import Record, SearchResult
from fenchel.decoding._support import Support, list_support, ranks, starts_of
from fenchel.decoding._trace import Prefix, StepRow

_REMEDY = "raise `beam` or use exact_search"


@torch.no_grad()
def beam_search(
    model: StepModel,
    source: Tensor,
    source_lengths: Tensor,
    *,
    beam: int = 5,
    nbest: int | None = 1,
    max_length: int = 100,
    length_penalty: float = 0.0,
    complete: bool = True,
    trace: bool = True,
    most: int | None = 32,
    bos: int = 1,
    eos: int = 2,
) -> list[SearchResult]:
    r"""The likeliest outputs of each source, and what is proved about them.

    Each step continues the live prefixes of a source by every token with p > 0. Those that end are
    kept aside, at no cost; of the others the ``beam`` likeliest live on. A model with exact zeros
    often leaves so few that none is pruned: then every output with p > 0 was found, their
    probabilities sum to 1, and the certificate is *exhaustive*. If prefixes were pruned, the best
    output is still *proved best* when it is at least as likely as the likeliest of them, because
    log-probabilities only fall. Otherwise the certificate tells the gap.

    With a length penalty a, outputs are ranked by

    .. math:: \log p(y) / \left(\frac{5 + |y|}{6}\right)^a,

    and the proofs stay sound by dividing a pruned prefix by the penalty of ``max_length``; they are
    then about outputs of at most ``max_length`` tokens.

    Use :func:`exact_search` when a proof matters more than time, :func:`greedy_search` when time
    is all that matters.

    Args:
        model: in evaluation mode; see :class:`StepModel`.
        source: ``(B, S)`` int64, padded.
        source_lengths: ``(B,)``.
        beam: how many unfinished prefixes of a source live at a time.
        nbest: how many outputs to return for a source; None: all that were found.
        max_length: the greatest length of an output, EOS not counted.
        length_penalty: a, at least 0.
        complete: go on, as long as nothing was pruned, though the ``nbest`` best are known, because
            the search may still turn out exhaustive. False stops at once.
        trace: whether to return each output's :class:`Trace`.
        most: how many tokens a trace lists at a step; None: all with p > 0.
        bos: the token that is fed first.
        eos: the token that ends an output.

    Returns:
        One :class:`SearchResult` per source.

    Example:
        >>> from fenchel.decoding import Bigram
        >>> model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 0.5, 2: 0.5}})
        >>> source, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1)
        >>> (result,) = beam_search(model, source, lengths, nbest=None)
        >>> [(found.tokens, found.probability) for found in result.hypotheses]
        [((3,), 0.375), ((3, 5), 0.375), ((4,), 0.25)]
        >>> result.certificate.kind, result.certificate.mass
        ('exhaustive', 1.0)
        >>> (narrow,) = beam_search(model, source, lengths, beam=1)
        >>> narrow.certificate.kind, narrow.certificate.reason
        ('proved best', 'No output that was not found can score above the best one.')

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """
    name = "beam_search"
    check_model(name, model)
    lengths = check_source(name, source, source_lengths)
    beam = check_at_least(name, "beam", beam, 1)
    nbest = check_count(name, "nbest", nbest, "all that were found")
    most = check_count(name, "most", most, "all tokens with p > 0")
    scoring = check_scoring(name, length_penalty, check_at_least(name, "max_length", max_length, 0))
    records = [Record(scoring, nbest, length) for length in lengths]
    if not records:
        return []

    state = model.start(source, source_lengths)
    live = [Prefix.root(bos) for _ in records]
    owner = list(range(len(records)))
    # EOS, the beam, and the one prefix that did not fit, which bounds what was pruned.
    listed = None if trace and most is None else max(beam + 2, most or 0 if trace else 0)
    for length in range(max_length + 1):
        if not live:
            break
        fed = torch.tensor([prefix.token for prefix in live], device=source.device)
        step = model.step(state, fed)
        support = list_support(name, step.probabilities, len(live), listed)
        attention = None if step.attention is None or not trace else step.attention.cpu()
        for row, prefix in enumerate(live):
            records[owner[row]].expanded += 1
            if trace:
                prefix.said = StepRow(support, row, attention)
        _finish(records, live, owner, step.probabilities[:, eos], eos)
        kept, lost = _choose(support, live, owner, eos, beam if length < max_length else 0)
        for place, log_probability in lost:
            missed = records[place].missed
            if length < max_length:
                missed.pruned = max(missed.pruned, log_probability)
            else:
                missed.cut = max(missed.cut, log_probability)
        if length == max_length:
            for row, prefix in enumerate(live):
                records[owner[row]].unfinished.append(prefix)
            break
        kept = _stop_settled(records, owner, kept, complete)
        live = [live[row].then(token, p, log_p) for row, token, p, log_p in kept]
        owner = [owner[row] for row, *_ in kept]
        rows = torch.tensor([row for row, *_ in kept], dtype=torch.int64, device=source.device)
        if live:
            state = step.state.select(rows)
    return [record.result(most, _REMEDY) for record in records]


_Kept = list[tuple[int, int, float, float]]  # row, token, its probability, the prefix's log


def _finish(
    records: list[Record], live: list[Prefix], owner: list[int], ends: Tensor, eos: int
) -> None:
    ends = ends.double().clamp(max=1.0).cpu()
    for row in ends.nonzero()[:, 0].tolist():
        probability = float(ends[row])
        log_probability = live[row].log_probability + float(ends[row].log())
        records[owner[row]].finish(live[row].end(eos, probability, log_probability))


def _choose(
    support: Support, live: list[Prefix], owner: list[int], eos: int, beam: int
) -> tuple[_Kept, list[tuple[int, float]]]:
    """The ``beam`` likeliest continuations of each source, and the likeliest one left out."""
    going = support.tokens != eos
    rows, tokens, values = support.rows[going], support.tokens[going], support.probabilities[going]
    before = torch.tensor([prefix.log_probability for prefix in live], dtype=torch.float64)
    scores = before[rows] + values.log()
    owners = torch.tensor(owner)[rows]
    # Stable sorts: of equal scores the better parent comes first, then the smaller id.
    order = scores.argsort(descending=True, stable=True)
    order = order[owners[order].argsort(stable=True)]
    owners = owners[order]
    rank = ranks(owners, starts_of(owners, max(owner) + 1))
    kept, edge = order[rank < beam], order[rank == beam]
    chosen = zip(
        rows[kept].tolist(),
        tokens[kept].tolist(),
        values[kept].tolist(),
        scores[kept].tolist(),
        strict=True,
    )
    lost = zip(owners[rank == beam].tolist(), scores[edge].tolist(), strict=True)
    return list(chosen), list(lost)


def _stop_settled(records: list[Record], owner: list[int], kept: _Kept, complete: bool) -> _Kept:
    """Drop the prefixes of sources whose n best cannot change any more."""
    best: dict[int, float] = {}
    for row, _, _, log_probability in kept:
        best.setdefault(owner[row], log_probability)  # the likeliest comes first
    stopped = set()
    for place, log_probability in best.items():
        record = records[place]
        if complete and record.missed.nothing:
            continue
        if record.settled_by(log_probability):
            record.missed.open = log_probability
            stopped.add(place)
    return [entry for entry in kept if owner[entry[0]] not in stopped]
