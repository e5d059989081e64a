"""An ensemble is the automaton of the averaged tables."""

from __future__ import annotations

import pytest
import torch

from fenchel import FenchelError
from fenchel.decoding import Bigram, Ensemble, beam_search, forced_decoding
from tests.decoding.automaton import Automaton, automaton, sources


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_average_automaton(seed):
    first, second = automaton(seed), automaton(seed + 100)
    second.move = first.move
    average = Automaton((first.table + second.table) / 2, first.move)
    options = {"beam": 3, "nbest": 4}
    got = beam_search(Ensemble([first, second]), *sources(0, 0), **options)
    assert got == beam_search(average, *sources(0, 0), **options)


def test_a_zero_is_no_veto():
    both = Ensemble([Bigram({1: {3: 1.0}}, vocabulary=5), Bigram({1: {4: 1.0}}, vocabulary=5)])
    (result,) = beam_search(both, *sources(0), nbest=None)
    assert {found.tokens: found.probability for found in result.hypotheses} == {
        (3,): 0.5,
        (4,): 0.5,
    }


def test_attention_only_where_all_agree():
    one = automaton(0)
    without = automaton(0, attends=False)
    target = torch.tensor([[2]])
    (trace,) = forced_decoding(Ensemble([one, one]), *sources(0), target)
    assert trace.steps[0].attention == (1.0, 0.0, 0.0)
    (trace,) = forced_decoding(Ensemble([one, without]), *sources(0), target)
    assert trace.steps[0].attention is None


def test_errors():
    with pytest.raises(FenchelError, match=r"expected at least one model, but got none\.$"):
        Ensemble([])
    with pytest.raises(FenchelError, match=r"^Ensemble: expected `model` with the methods"):
        Ensemble([3])
    mixed = Ensemble([Bigram({1: {3: 1.0}}), Bigram({1: {4: 1.0}})])
    with pytest.raises(FenchelError) as caught:
        beam_search(mixed, *sources(0))
    assert str(caught.value) == (
        "Ensemble: expected models with one vocabulary, but theirs have [4, 5] tokens."
    )


def test_training_mode_shows_through():
    model = Bigram({1: {3: 1.0}})
    ensemble = Ensemble([model, Bigram({1: {3: 1.0}})])
    assert not ensemble.training
    model.training = True
    assert ensemble.training
    with pytest.raises(FenchelError, match=r"in training mode; call `model\.eval\(\)` first\.$"):
        beam_search(ensemble, *sources(0))
