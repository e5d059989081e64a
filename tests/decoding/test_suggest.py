"""Suggestions: what can follow a prefix, and what must."""

from __future__ import annotations

import pytest
import torch

from fenchel import FenchelError
from fenchel.decoding import Bigram, suggest
from tests.decoding.automaton import EOS, automaton, dense, sources

CHAIN = Bigram({1: {3: 1.0}, 3: {4: 0.75, 5: 0.25}, 4: {6: 1.0}, 6: {7: 1.0}})


def test_prefixes_of_several_lengths():
    model = automaton(2, sources=2)
    prefix = torch.tensor([[4, 5, 6], [7, 0, 0], [0, 0, 0]])
    for kind, row, said in zip(
        (1, 0, 1), prefix.tolist(), suggest(model, *sources(1, 0, 1), prefix), strict=True
    ):
        node = 0
        for token in row:
            node = int(model.move[node, token]) if token else node
        truth = model.table[kind, node].double()
        assert set(said.tokens) == set(truth.nonzero()[:, 0].tolist())
        assert list(said.probabilities) == sorted(truth[truth > 0].tolist(), reverse=True)
        assert said.support_size == len(said.tokens) and said.rest == 0


def test_what_must_follow():
    prefix = torch.tensor([[0, 0], [3, 0], [3, 4]])
    first, choice, end = suggest(CHAIN, *sources(0, 0, 0), prefix)
    assert first.tokens == (3,) and first.certain == (3,)
    assert choice.tokens == (4, 5) and choice.certain == ()
    assert end.certain == (6, 7, EOS)
    assert suggest(CHAIN, *sources(0), prefix[2:], ahead=2)[0].certain == (6, 7)
    assert suggest(CHAIN, *sources(0), prefix[2:], ahead=0)[0].certain == ()


def test_k_cuts_the_list_and_says_so():
    model = dense(0, vocabulary=9)
    prefix = torch.zeros(1, 0, dtype=torch.int64)
    (three,) = suggest(model, *sources(0), prefix, 3)
    (all_,) = suggest(model, *sources(0), prefix)
    assert three.tokens == all_.tokens[:3] and len(all_.tokens) == 7
    assert three.support_size == 7 and three.rest == pytest.approx(sum(all_.probabilities[3:]))
    assert three.to_dict() == {
        "tokens": list(three.tokens),
        "probabilities": list(three.probabilities),
        "support_size": 7,
        "rest": three.rest,
        "certain": [],
    }


def test_other_names():
    model = Bigram({7: {3: 1.0}, 3: {5: 1.0}}, eos=5)
    (said,) = suggest(model, *sources(0), torch.tensor([[6]]), bos=7, eos=5, pad=6)
    assert said.certain == (3, 5)


def test_errors():
    with pytest.raises(FenchelError) as caught:
        suggest(CHAIN, *sources(0, 0), torch.tensor([[3, 4], [3, EOS]]))
    assert str(caught.value) == (
        "suggest: expected `prefix` without EOS (2), since nothing follows it, but row 1 has one."
    )
    with pytest.raises(FenchelError) as caught:
        suggest(CHAIN, *sources(0), torch.tensor([[3, 99]]))
    assert str(caught.value) == (
        "suggest: expected tokens between 0 and 7, the model's vocabulary, but got 99."
    )
    with pytest.raises(FenchelError) as caught:
        suggest(CHAIN, *sources(0), torch.tensor([[3], [4]]))
    assert str(caught.value) == (
        "suggest: expected `prefix` with 1 rows, as many as `source`, but got 2."
    )
    with pytest.raises(
        FenchelError, match=r"^suggest: expected `ahead` to be an int of at least 0, but got -1\.$"
    ):
        suggest(CHAIN, *sources(0), torch.tensor([[3]]), ahead=-1)
