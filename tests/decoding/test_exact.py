"""Best-first search: proofs, lists and budgets against all strings of random automata."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from fenchel.decoding import Bigram, beam_search, exact_search
from tests.decoding.automaton import automaton, dense, ranked, sources
from tests.decoding.truth import check_claims

ONE = sources(0)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("budget", [3, 12, 5000])
def test_no_claim_is_ever_wrong(budget, penalty):
    seen = Counter()
    for seed in range(60):
        model = automaton(seed, acyclic=seed % 3 > 0, widest=2 + seed % 3)
        strings = model.strings(deepest=6)
        ends = math.isclose(math.fsum(map(math.exp, strings.values())), 1.0, abs_tol=1e-6)
        for nbest in (1, 4):
            (result,) = exact_search(
                model, *ONE, nbest=nbest, budget=budget, max_length=6, length_penalty=penalty
            )
            assert result.expanded <= budget
            seen[check_claims(result, strings, ends=ends, penalty=penalty)] += 1
            if budget == 5000 and penalty > 0:
                assert result.certificate.certain == bool(strings)
                assert result.certificate.proved >= min(nbest, len(strings))
    assert seen["proved best"] > 10


def test_all_strings_are_listed():
    for seed in range(40):
        model = automaton(seed, widest=4)
        strings = model.strings()
        (result,) = exact_search(model, *ONE, nbest=None, budget=10_000)
        assert result.certificate.kind == "exhaustive"
        assert [found.tokens for found in result.hypotheses[:1]] == [ranked(strings)[0][1]] or (
            math.isclose(result.best.score, ranked(strings)[0][0])
        )
        assert {found.tokens for found in result.hypotheses} == strings.keys()


def test_the_list_stops_at_a_mass():
    model = dense(4)
    (half,) = exact_search(model, *ONE, nbest=None, mass=0.5, budget=3000)
    (more,) = exact_search(model, *ONE, nbest=None, mass=0.8, budget=3000)
    assert 0.5 <= half.certificate.mass < 0.8 <= more.certificate.mass < 1
    assert half.expanded < more.expanded < 3000
    assert half.certificate.mass == pytest.approx(sum(f.probability for f in half.hypotheses))


def test_a_beam_search_that_fails_is_corrected():
    model = Bigram({1: {3: 0.6, 4: 0.4}, 3: {5: 0.5, 6: 0.5}})
    (narrow,) = beam_search(model, *ONE, beam=1)
    (exact,) = exact_search(model, *ONE)
    assert narrow.best.tokens == (3, 5) and narrow.certificate.kind == "none"
    assert exact.best.tokens == (4,) and exact.certificate.certain


def test_many_sources_equal_one_by_one():
    model = automaton(11, sources=4, widest=4)
    options = {"nbest": 3, "budget": 9, "width": 2}
    together = exact_search(model, *sources(3, 1, 0, 2), **options)
    assert together == [exact_search(model, *sources(k), **options)[0] for k in (3, 1, 0, 2)]
    assert exact_search(model, torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0)) == []


def test_width_changes_the_work_and_not_the_answer():
    spent = set()
    for width in (1, 4, 64):
        model = dense(3)
        (result,) = exact_search(model, *ONE, nbest=5, width=width, budget=2000)
        assert result.certificate.proved >= 5
        spent.add(result.expanded)
        answer = [found.tokens for found in result.hypotheses]
        assert answer == [tokens for _, tokens in ranked(model.strings(deepest=7))[:5]]
    assert len(spent) > 1


def test_out_of_budget_there_is_an_output_and_a_gap():
    # Many short prefixes are likelier than any output: best-first alone would find none.
    wide = {token: 1 / 64 for token in range(3, 67)}
    model = Bigram({token: wide for token in (1, *range(3, 67))}, vocabulary=67)
    model.table[3] = 0
    model.table[3, 2] = 1.0
    model.table[1, 3] = 1 / 64 - 1e-4
    model.table[1, 5] += 1e-4
    (result,) = exact_search(model, *ONE, budget=10, width=4)
    assert result.best.finished and result.best.tokens == (5, 3)
    assert 0 < result.certificate.gap < 10 and result.expanded == 10
    assert result.certificate.reason == (
        "An output that was not found may score higher by at most "
        f"{result.certificate.gap:.4g}; raise `budget`."
    )


def test_a_budget_too_small_for_any_output():
    model = Bigram({1: {3: 1.0}, 3: {4: 1.0}})
    (result,) = exact_search(model, *ONE, budget=1)
    assert result.best.tokens == (3,) and not result.best.finished
    assert result.certificate.reason == "No output ended so far; raise `budget`."


def test_a_model_that_never_ends():
    model = Bigram({1: {3: 1.0}, 3: {3: 1.0}})
    (result,) = exact_search(model, *ONE, max_length=5)
    assert result.best.tokens == (3,) * 5 and not result.best.finished
    assert result.certificate.reason == "No output ended within 5 tokens; raise `max_length`."
    assert result.expanded == 6


def test_traces_and_other_names():
    model = dense(2, vocabulary=9)
    (result,) = exact_search(model, *ONE, most=2, budget=50)
    assert all(len(step.support) == 2 and step.rest > 0 for step in result.best.trace.steps)
    (whole,) = exact_search(model, *ONE, most=None, budget=50)
    assert all(len(step.support) == 7 for step in whole.best.trace.steps)
    assert exact_search(model, *ONE, trace=False, budget=50)[0].best.trace is None
    other = Bigram({7: {3: 1.0}, 3: {5: 1.0}}, eos=5)
    assert exact_search(other, *ONE, bos=7, eos=5)[0].best.tokens == (3,)
