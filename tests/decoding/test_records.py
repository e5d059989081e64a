"""Traces, certificates and results: what they say, and their way through JSON."""

from __future__ import annotations

import json
import math

import pytest

from fenchel.decoding import (
    Bigram,
    Certificate,
    SearchResult,
    Trace,
    TraceStep,
    beam_search,
    exact_search,
)
from fenchel.decoding._certificate import Missed, Scoring, certify
from tests.decoding.automaton import automaton, dense, sources

PLAIN, PENALISED = Scoring(0.0, 7), Scoring(1.0, 7)
HALF, QUARTER = math.log(0.5), math.log(0.25)


@pytest.mark.parametrize("model", [automaton(1), automaton(1, attends=False), dense(3)])
@pytest.mark.parametrize("trace", [True, False])
def test_results_survive_json(model, trace):
    for result in beam_search(model, *sources(0), nbest=3, trace=trace, max_length=6):
        text = json.dumps(result.to_dict(), allow_nan=False)
        assert SearchResult.from_dict(json.loads(text)) == result


def test_an_infinite_gap_survives_json():
    (result,) = beam_search(Bigram({1: {3: 1.0}, 3: {3: 1.0}}), *sources(0), max_length=2)
    assert result.certificate.gap == math.inf
    text = json.dumps(result.to_dict(), allow_nan=False)
    assert SearchResult.from_dict(json.loads(text)) == result


def test_a_trace_multiplies_its_steps():
    steps = tuple(TraceStep(3, p, (3,), (p,), 1, 0.0) for p in (0.5, 0.25))
    trace = Trace((3, 3), steps, False)
    assert trace.probability == pytest.approx(0.125)
    assert Trace((), (), False).probability == 1


def test_certificates():
    nothing = Missed()
    assert certify([HALF, HALF], 1.0, nothing, PLAIN, "x") == Certificate(
        "exhaustive", 0.0, 1.0, 2, "Search found all 2 outputs with probability above 0."
    )
    # Equal is enough, and the second best is not proved.
    got = certify([HALF, QUARTER - 1], 0.6, Missed(pruned=QUARTER), PLAIN, "x")
    assert (got.kind, got.gap, got.proved, got.certain) == ("proved best", 0.0, 1, True)
    for missed in (Missed(pruned=HALF), Missed(cut=HALF), Missed(open=HALF)):
        got = certify([QUARTER], 0.25, missed, PLAIN, "do x")
        assert got.kind == "none" and got.gap == pytest.approx(math.log(2)) and not got.certain
        action = "raise `max_length`" if missed.cut > -math.inf else "do x"
        assert got.reason == (
            f"An output that was not found may score higher by at most 0.6931; {action}."
        )


def test_a_penalty_bounds_prefixes_at_the_greatest_length():
    # A prefix of probability 1/2 can score log(1/2) / 2 at 7 tokens.
    got = certify([0.6 * HALF], 0.1, Missed(pruned=HALF), PENALISED, "do x")
    assert got.gap == pytest.approx(0.1 * -HALF)
    assert got.reason.startswith("An output of at most 7 tokens that was not found may")
    assert certify([0.5 * HALF], 0.1, Missed(pruned=HALF), PENALISED, "x").kind == "proved best"
    # What is too long is not among the outputs that the claim is about.
    assert certify([5.0 * HALF], 0.1, Missed(cut=HALF), PENALISED, "x").kind == "proved best"


def test_found_counts_what_nbest_leaves_out():
    (result,) = beam_search(automaton(4, widest=4), *sources(0), nbest=2, beam=50)
    assert result.found > 2 == len(result.hypotheses)
    assert result.certificate.mass == pytest.approx(1.0, abs=1e-6)
    (listed,) = exact_search(automaton(4, widest=4), *sources(0), nbest=None)
    assert listed.found == result.found == len(listed.hypotheses)
