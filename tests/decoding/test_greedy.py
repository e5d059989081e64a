"""Greedy search: the argmax at each step, and what it proves."""

from __future__ import annotations

import math
from collections import Counter

import torch

from fenchel.decoding import Bigram, greedy_search
from tests.decoding.automaton import EOS, automaton, dense, sources
from tests.decoding.truth import check_claims

ONE = sources(0)


def follow_argmax(model, longest):
    """The truth, token by token."""
    node, tokens, table = 0, [], model.table[0].double()
    while True:
        token = int(table[node].argmax())
        if token == EOS or len(tokens) == longest:
            return tuple(tokens), token == EOS, bool((table[node] > 0).sum() == 1)
        tokens.append(token)
        node = int(model.move[node, token])


def test_takes_the_argmax_and_claims_only_the_truth():
    seen = Counter()
    for seed in range(150):
        model = automaton(seed, widest=1 + seed % 3, acyclic=seed % 4 > 0)
        strings = model.strings(deepest=6)
        (result,) = greedy_search(model, *ONE, max_length=6)
        tokens, finished, _ = follow_argmax(model, 6)
        assert (result.best.tokens, result.best.finished) == (tokens, finished)
        assert len(result.hypotheses) == 1
        ends = math.isclose(math.fsum(map(math.exp, strings.values())), 1.0, abs_tol=1e-6)
        kind = check_claims(result, strings, ends=ends)
        assert (kind == "exhaustive") == (ends and len(strings) == 1)
        seen[kind] += 1
    assert all(seen[kind] > 15 for kind in ("exhaustive", "proved best", "none")), seen


def test_many_sources_equal_one_by_one():
    model = automaton(7, sources=4)
    together = greedy_search(model, *sources(3, 1, 0, 2))
    assert together == [greedy_search(model, *sources(k))[0] for k in (3, 1, 0, 2)]
    assert greedy_search(model, torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0)) == []


def test_it_can_miss_the_best_and_says_so():
    model = Bigram({1: {3: 0.6, 4: 0.4}, 3: {5: 0.5, 6: 0.5}})
    (result,) = greedy_search(model, *ONE)
    assert result.best.tokens == (3, 5)
    assert result.certificate.reason == (
        "An output that was not found may score higher by at most 0.2877; use beam_search."
    )


def test_arguments_change_something():
    model = dense(2, vocabulary=9)
    (result,) = greedy_search(model, *ONE, max_length=3)
    assert result.best.length <= 3
    assert greedy_search(model, *ONE, trace=False, max_length=3)[0].best.trace is None
    (short,) = greedy_search(model, *ONE, most=2, max_length=3)
    assert all(len(step.support) == 2 and step.rest > 0 for step in short.best.trace.steps)
    (all_,) = greedy_search(model, *ONE, most=None, max_length=3)
    assert all(len(step.support) == 7 for step in all_.best.trace.steps)
    other = Bigram({7: {3: 1.0}, 3: {5: 1.0}}, eos=5)
    assert greedy_search(other, *ONE, bos=7, eos=5)[0].best.tokens == (3,)


def test_ties_go_to_the_smaller_id():
    (result,) = greedy_search(Bigram({1: {5: 0.5, 3: 0.5}}), *ONE)
    assert result.best.tokens == (3,) and result.certificate.kind == "proved best"
