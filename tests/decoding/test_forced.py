"""Along given tokens: supports and probabilities of targets, and what may follow a prefix."""

from __future__ import annotations

import math

import pytest
import torch

from fenchel import FenchelError
from fenchel.decoding import Bigram, beam_search, forced_decoding, suggest
from tests.decoding.automaton import EOS, automaton, dense, sources


def test_equals_the_trace_of_the_search_that_found_it():
    model = automaton(1, sources=3, widest=4)
    batch = sources(0, 1, 2)
    found = [result.best for result in beam_search(model, *batch, most=2)]
    target = torch.zeros(3, max(each.length for each in found) + 2, dtype=torch.int64)
    for row, each in enumerate(found):
        target[row, : each.length + 1] = torch.tensor([*each.tokens, EOS])
    assert len({each.length for each in found}) > 1
    traces = forced_decoding(model, *batch, target, most=2)
    assert traces == [each.trace for each in found]


def test_goes_on_after_a_token_without_mass():
    model = automaton(1)
    target = torch.tensor([[5, 7, 3, EOS]])
    (trace,) = forced_decoding(model, *sources(0), target)
    node = 0
    for step, token in zip(trace.steps, target[0].tolist(), strict=True):
        row = model.table[0, node].double()
        assert step.token == token and step.probability == float(row[token])
        assert set(step.support) == set(row.nonzero()[:, 0].tolist())
        assert list(step.probabilities) == row[list(step.support)].tolist()
        node = int(model.move[node, token])
    assert trace.tokens == (5, 7, 3) and trace.finished
    assert trace.log_probability == -math.inf and trace.probability == 0


def test_targets_without_eos_or_empty():
    model = automaton(1)
    target = torch.tensor([[5, 7, 0], [0, 0, 0], [EOS, 5, 5]])
    cut, empty, ended = forced_decoding(model, *sources(0, 0, 0), target)
    assert not cut.finished and cut.tokens == (5, 7) and len(cut.steps) == 2
    assert not empty.finished and empty.steps == () and empty.probability == 1
    assert ended.finished and ended.tokens == () and len(ended.steps) == 1
    none = forced_decoding(model, torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0), target[:0])
    assert none == []


def test_arguments_change_something():
    model = dense(0, vocabulary=9)
    target = torch.tensor([[3, 4, EOS]])
    (short,) = forced_decoding(model, *sources(0), target, most=2)
    (whole,) = forced_decoding(model, *sources(0), target, most=None)
    assert [len(step.support) for step in short.steps] == [2, 2, 2]
    assert [len(step.support) for step in whole.steps] == [7, 7, 7]
    for few, all_ in zip(short.steps, whole.steps, strict=True):
        assert few.rest == pytest.approx(sum(all_.probabilities[2:]))
        assert few.probability == all_.probability
    other = Bigram({7: {3: 1.0}, 3: {5: 1.0}}, eos=5)
    (trace,) = forced_decoding(
        other, *sources(0), torch.tensor([[3, 5, 6, 6]]), bos=7, eos=5, pad=6
    )
    assert trace.tokens == (3,) and trace.finished and trace.probability == 1
    (padded,) = forced_decoding(other, *sources(0), torch.tensor([[3, 6, 6]]), bos=7, pad=6)
    assert padded.tokens == (3,) and not padded.finished


@pytest.mark.parametrize("row", [[9, EOS], [3, 9], [-1, EOS]])
def test_tokens_outside_the_vocabulary(row):
    with pytest.raises(FenchelError) as caught:
        forced_decoding(dense(0, vocabulary=9), *sources(0), torch.tensor([row]))
    wrong = next(token for token in row if token not in (3, EOS))
    assert str(caught.value) == (
        "forced_decoding: expected tokens between 0 and 8, the model's vocabulary, but got "
        f"{wrong}."
    )


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
