"""Beam search against the list of all strings of random automata."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from fenchel.decoding import Bigram, beam_search
from tests.decoding.automaton import EOS, automaton, dense, ranked, sources
from tests.decoding.truth import check_claims

ONE = sources(0)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_no_claim_is_ever_wrong(penalty):
    seen = Counter()
    for seed in range(120):
        acyclic = seed % 3 > 0
        model = automaton(seed, acyclic=acyclic, widest=2 + seed % 3)
        length = 6 if acyclic else 7
        strings = model.strings(deepest=length)
        for beam, nbest in ((1, 1), (2, 3), (4, None), (30, 1)):
            (result,) = beam_search(
                model, *ONE, beam=beam, nbest=nbest, max_length=length, length_penalty=penalty
            )
            if nbest is not None:
                assert len(result.hypotheses) <= nbest
            ends = math.isclose(math.fsum(map(math.exp, strings.values())), 1.0, abs_tol=1e-6)
            seen[check_claims(result, strings, ends=ends, penalty=penalty)] += 1
    assert all(seen[kind] > 30 for kind in ("exhaustive", "proved best", "none")), seen


def test_exhaustive_exactly_when_the_continuations_fit():
    seen = Counter()
    for seed in range(80):
        model = automaton(seed)
        strings = model.strings()
        # The most prefixes of one length that an output, not EOS, continues.
        fits = max(len({s[:n] for s in strings if len(s) >= n}) for n in range(1, 6))
        for beam in range(1, 7):
            (result,) = beam_search(model, *ONE, beam=beam, nbest=None)
            assert (result.certificate.kind == "exhaustive") == (fits <= beam)
            seen[fits <= beam] += 1
            if fits <= beam:
                assert {found.tokens for found in result.hypotheses} == strings.keys()
    assert min(seen.values()) > 50


def test_many_sources_equal_one_by_one():
    model = automaton(3, sources=5, widest=4)
    together = beam_search(model, *sources(4, 0, 2, 1, 3, 0), beam=2, nbest=3)
    alone = [beam_search(model, *sources(k), beam=2, nbest=3)[0] for k in (4, 0, 2, 1, 3, 0)]
    assert together == alone
    assert len({result.best.tokens for result in alone}) > 1
    assert beam_search(model, torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0)) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_dense_model(seed):
    model = dense(seed)
    strings = model.strings(deepest=5)
    (result,) = beam_search(model, *ONE, beam=4, nbest=4, max_length=5)
    check_claims(result, strings, ends=False)
    assert result.certificate.kind != "exhaustive"
    assert result.certificate.mass < 1
    everything = beam_search(model, *ONE, beam=3**6, nbest=None, max_length=5)[0]
    assert everything.found == len(strings)
    assert everything.best.tokens == ranked(strings)[0][1]


def test_only_the_empty_output():
    model = Bigram({1: {EOS: 1.0}})
    (result,) = beam_search(model, *ONE)
    assert result.best.tokens == () and result.best.probability == 1.0
    assert result.best.length == 0 and result.expanded == 1
    assert result.certificate.kind == "exhaustive"
    assert result.certificate.reason == "Search found the one output with probability above 0."
    assert (result.best.trace.steps[0].token, len(result.best.trace.steps)) == (EOS, 1)


def test_a_model_that_never_ends():
    model = Bigram({1: {3: 0.5, 4: 0.5}, 3: {3: 1.0}, 4: {3: 1.0}})
    (result,) = beam_search(model, *ONE, max_length=4)
    assert not result.best.finished and result.best.tokens == (3, 3, 3, 3)
    assert len(result.best.trace.steps) == 4 and result.found == 0
    assert result.certificate.kind == "none" and result.certificate.mass == 0
    assert result.certificate.gap == math.inf
    assert result.certificate.reason == "No output ended within 4 tokens; raise `max_length`."


def test_a_cut_is_not_exhaustive_and_can_hide_the_best():
    model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 1.0}})
    (cut,) = beam_search(model, *ONE, max_length=1)
    assert cut.best.tokens == (4,) and cut.certificate.kind == "none"
    assert cut.certificate.gap == pytest.approx(math.log(3))
    assert cut.certificate.reason == (
        "An output that was not found may score higher by at most 1.099; raise `max_length`."
    )
    (whole,) = beam_search(model, *ONE, max_length=2)
    assert whole.best.tokens == (3, 5) and whole.certificate.kind == "exhaustive"


def test_under_a_penalty_the_claim_is_about_allowed_lengths():
    model = Bigram({1: {3: 0.75, 4: 0.25}, 3: {5: 1.0}})
    (cut,) = beam_search(model, *ONE, max_length=1, length_penalty=1.0)
    assert cut.best.tokens == (4,) and cut.certificate.kind == "proved best"
    assert cut.certificate.reason == (
        "No output of at most 1 tokens that was not found can score above the best one."
    )


def test_the_penalty_prefers_longer_outputs():
    model = Bigram({1: {3: 0.5, 4: 0.5}, 3: {EOS: 0.9, 5: 0.1}, 4: {5: 0.89, EOS: 0.11}})
    (plain,) = beam_search(model, *ONE)
    (penalised,) = beam_search(model, *ONE, length_penalty=1.0)
    assert plain.best.tokens == (3,) and penalised.best.tokens == (4, 5)
    assert penalised.best.score == pytest.approx(math.log(0.445) / (7 / 6))
    assert penalised.best.log_probability == pytest.approx(math.log(0.445))


def test_ties_go_to_the_smaller_ids():
    quarter = dict.fromkeys((6, 3, 5, 4), 0.25)
    model = Bigram({1: quarter})
    (result,) = beam_search(model, *ONE, beam=2, nbest=None)
    assert [found.tokens for found in result.hypotheses] == [(3,), (4,)]
    assert result.certificate.kind == "proved best" and result.certificate.proved == 2


def test_a_beam_larger_than_the_vocabulary():
    (result,) = beam_search(Bigram({1: {3: 0.5, 4: 0.5}}), *ONE, beam=1000, nbest=None)
    assert result.found == 2 and result.certificate.kind == "exhaustive"


def test_a_tie_with_a_pruned_prefix_is_proved():
    model = Bigram({1: {3: 0.5, 4: 0.5}})
    (result,) = beam_search(model, *ONE, beam=1)
    assert result.certificate.kind == "proved best" and result.certificate.mass == 0.5


def test_complete_goes_on_until_the_list_is_whole():
    model = Bigram({1: {EOS: 0.9, 3: 0.1}, 3: {4: 1.0}})
    (whole,) = beam_search(model, *ONE)
    (fast,) = beam_search(model, *ONE, complete=False)
    assert whole.certificate.kind == "exhaustive" and whole.expanded == 3
    assert fast.certificate.kind == "proved best" and fast.expanded == 1
    assert fast.certificate.mass == pytest.approx(0.9)
    assert whole.hypotheses == fast.hypotheses


def test_settled_sources_leave_the_batch():
    model = dense(0)
    model.table[:] = 0
    model.table[..., EOS], model.table[..., 3], model.table[..., 4] = 0.6, 0.3, 0.1
    (result,) = beam_search(model, *ONE, beam=1, max_length=50)
    assert result.expanded == model.rows == 1  # no live prefix can beat 0.6
    model.rows = 0
    beam_search(model, *ONE, beam=1, nbest=3, max_length=50)
    assert 2 < model.rows < 10
    model.rows = 0
    beam_search(model, *ONE, beam=1, nbest=None, max_length=50)
    assert model.rows == 51


def test_traces_are_capped_with_what_is_left_out():
    model = dense(1, vocabulary=12)
    (result,) = beam_search(model, *ONE, beam=2, most=3, max_length=6)
    (whole,) = beam_search(model, *ONE, beam=2, most=None, max_length=6)
    for short, long in zip(result.best.trace.steps, whole.best.trace.steps, strict=True):
        assert short.support == long.support[:3] and len(long.support) == 10
        assert short.support_size == long.support_size == 10
        assert short.rest == pytest.approx(sum(long.probabilities[3:])) and long.rest == 0
        assert list(long.probabilities) == sorted(long.probabilities, reverse=True)
    (bare,) = beam_search(model, *ONE, beam=2, trace=False, max_length=6)
    assert bare.best.trace is None and bare.best.tokens == result.best.tokens


def test_attention_has_the_length_of_the_source():
    model = automaton(5)
    source, _ = sources(0, 0, width=4)
    short, long = beam_search(model, source, torch.tensor([2, 4]))
    assert [len(step.attention) for step in short.best.trace.steps] == [2] * len(
        short.best.trace.steps
    )
    assert long.best.trace.steps[0].attention == (1.0, 0.0, 0.0, 0.0)
    (without,) = beam_search(automaton(5, attends=False), *ONE)
    assert without.best.trace.steps[0].attention is None


def test_other_names_for_bos_and_eos():
    model = Bigram({7: {3: 1.0}, 3: {5: 1.0}}, eos=5)
    (result,) = beam_search(model, *ONE, bos=7, eos=5)
    assert result.best.tokens == (3,)


def test_tiny_probabilities_do_not_underflow():
    tiny = 1e-30
    model = Bigram({1: {3: 1.0}, 3: {3: tiny, 2: 1.0}})
    (result,) = beam_search(model, *ONE, nbest=None, max_length=30)
    assert result.hypotheses[-1].length == 30
    assert result.hypotheses[-1].log_probability == pytest.approx(29 * math.log(tiny), rel=1e-6)
