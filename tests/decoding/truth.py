"""One check of what a search claims against the list of all strings."""

from __future__ import annotations

import math

from fenchel.decoding import SearchResult
from tests.decoding.automaton import ranked


def check_claims(
    result: SearchResult,
    strings: dict[tuple[int, ...], float],
    *,
    ends: bool,
    penalty: float = 0.0,
) -> str:
    """Compare with ``strings``: all those of at most the greatest length, and all there are if
    the automaton ``ends`` by itself within it. Returns the certificate's kind."""
    certificate = result.certificate
    truth = ranked(strings, penalty)
    for hypothesis in result.hypotheses:
        if hypothesis.finished:
            assert math.isclose(hypothesis.log_probability, strings[hypothesis.tokens])
        if hypothesis.trace is not None:
            trace = hypothesis.trace
            assert trace.tokens == hypothesis.tokens and trace.finished == hypothesis.finished
            assert math.isclose(
                trace.log_probability, hypothesis.log_probability, rel_tol=1e-9, abs_tol=1e-12
            )
            for step in trace.steps:
                assert step.rest == 0 and step.support_size == len(step.support)
                assert math.isclose(sum(step.probabilities), 1.0, abs_tol=1e-6)
    scores = [hypothesis.score for hypothesis in result.hypotheses]
    assert scores == sorted(scores, reverse=True)
    proved = min(certificate.proved, len(scores))
    for score, (best, _) in zip(scores[:proved], truth, strict=False):
        assert math.isclose(score, best, rel_tol=1e-12, abs_tol=1e-12)

    if certificate.kind == "exhaustive":
        assert ends and result.found == len(strings)
        assert math.isclose(certificate.mass, 1.0, abs_tol=1e-6)
    if certificate.kind == "none":
        assert certificate.gap > 0 and certificate.proved == 0
        if result.found:
            assert truth[0][0] <= scores[0] + certificate.gap + 1e-12
        else:
            assert certificate.gap == math.inf
    else:
        assert certificate.gap == 0 and certificate.proved >= 1
        assert math.isclose(scores[0], truth[0][0], rel_tol=1e-12, abs_tol=1e-12)
    return certificate.kind
