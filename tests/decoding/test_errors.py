"""Each wrong argument and each wrong model, and its sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fenchel import FenchelError
from fenchel.decoding import (
    Bigram,
    beam_search,
    exact_search,
    forced_decoding,
    greedy_search,
    suggest,
)
from tests.decoding.automaton import sources

MODEL = Bigram({1: {3: 0.5, 4: 0.5}})
SOURCE, LENGTHS = sources(0, 0)
ROWS = torch.tensor([[3, 2], [4, 2]])


def searches():
    """Every search as a function of model, sources and lengths."""
    prefix = torch.tensor([[3], [4]])
    return {
        "beam_search": beam_search,
        "greedy_search": greedy_search,
        "exact_search": exact_search,
        "forced_decoding": lambda *given, **more: forced_decoding(*given, ROWS, **more),
        "suggest": lambda *given, **more: suggest(*given, prefix, **more),
    }


each = pytest.mark.parametrize("name", searches())


def sentence(function, *given, **more):
    with pytest.raises(FenchelError) as caught:
        function(*given, **more)
    return str(caught.value)


@each
def test_models(name):
    search = searches()[name]
    assert sentence(search, 3, SOURCE, LENGTHS) == (
        f"{name}: expected `model` with the methods `start` and `step`, but got int."
    )
    training = Bigram({1: {3: 1.0}})
    training.training = True
    assert sentence(search, training, SOURCE, LENGTHS) == (
        f"{name}: expected `model` in evaluation mode, but it is in training mode; call "
        "`model.eval()` first."
    )


@each
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([0, 0, 0, math.nan, 0.5], "row 1 sums to nan with a least entry of nan"),
        ([0, 0, 0, 0.5, 0.25], "row 1 sums to 0.75 with a least entry of 0"),
        ([0, 0, -0.5, 0.75, 0.75], "row 1 sums to 1 with a least entry of -0.5"),
        ([0, 0, 0, 0, 0], "row 1 sums to 0 with a least entry of 0"),
        ([0, 0, 0, math.inf, 0], "row 1 sums to inf with a least entry of 0"),
    ],
    ids=["nan", "short", "negative", "zeros", "inf"],
)
def test_probabilities(name, row, said):
    class Broken(Bigram):
        def step(self, state, tokens):
            step = super().step(state, tokens)
            step.probabilities[1:] = torch.tensor(row)
            return step

    model = Broken({1: {3: 0.5, 4: 0.5}})
    assert sentence(searches()[name], model, SOURCE, LENGTHS) == (
        f"{name}: expected `model.step` to give probabilities of at least 0 that sum to 1, but "
        f"{said}."
    )


@each
def test_shapes_of_probabilities(name):
    class Wide(Bigram):
        def step(self, state, tokens):
            return super().step(state, tokens.repeat(2))

    assert sentence(searches()[name], Wide({1: {3: 1.0}}), SOURCE, LENGTHS) == (
        f"{name}: expected `model.step` to give probabilities of shape (2, V), but got (4, 4)."
    )


@each
def test_sources(name):
    search = searches()[name]
    assert sentence(search, MODEL, [[0]], LENGTHS) == (
        f"{name}: expected `source` to be an int64 tensor with one row per source, but got list."
    )
    assert sentence(search, MODEL, SOURCE.float(), LENGTHS) == (
        f"{name}: expected `source` to be an int64 tensor with one row per source, but got "
        "torch.float32 of shape (2, 3)."
    )
    assert sentence(search, MODEL, SOURCE, LENGTHS[:1]) == (
        f"{name}: expected `source_lengths` to be a tensor of shape (2,), one length per source, "
        "but got (1,)."
    )
    assert sentence(search, MODEL, SOURCE, [3, 3]).endswith("one length per source, but got list.")
    assert sentence(search, MODEL, SOURCE, torch.tensor([3, 4])) == (
        f"{name}: expected `source_lengths` between 0 and 3, the width of `source`, but got [3, 4]."
    )


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("beam_search", {"beam": 0}, "expected `beam` to be an int of at least 1, but got 0."),
        ("beam_search", {"beam": 2.5}, "expected `beam` to be an int of at least 1, but got 2.5."),
        (
            "beam_search",
            {"nbest": 0},
            "`nbest` must be at least 1, or None for all that were found; got 0.",
        ),
        (
            "beam_search",
            {"most": 0},
            "`most` must be at least 1, or None for all tokens with p > 0; got 0.",
        ),
        (
            "beam_search",
            {"max_length": -1},
            "expected `max_length` to be an int of at least 0, but got -1.",
        ),
        (
            "beam_search",
            {"length_penalty": -1},
            "`length_penalty` must be at least 0 (0 is no penalty); got -1.",
        ),
        (
            "beam_search",
            {"length_penalty": 11},
            "`length_penalty` must be at most 10 (0 to 2 is usual); got 11.",
        ),
        (
            "greedy_search",
            {"max_length": -1},
            "expected `max_length` to be an int of at least 0, but got -1.",
        ),
        (
            "greedy_search",
            {"most": 0},
            "`most` must be at least 1, or None for all tokens with p > 0; got 0.",
        ),
        (
            "exact_search",
            {"nbest": 0},
            "`nbest` must be at least 1, or None for all outputs; got 0.",
        ),
        ("exact_search", {"budget": 0}, "expected `budget` to be an int of at least 1, but got 0."),
        ("exact_search", {"width": 0}, "expected `width` to be an int of at least 1, but got 0."),
        (
            "exact_search",
            {"max_length": -1},
            "expected `max_length` to be an int of at least 0, but got -1.",
        ),
        (
            "exact_search",
            {"length_penalty": math.nan},
            "`length_penalty` must be at least 0 (0 is no penalty); got nan.",
        ),
        (
            "exact_search",
            {"most": 0},
            "`most` must be at least 1, or None for all tokens with p > 0; got 0.",
        ),
        (
            "exact_search",
            {"mass": 1.5, "nbest": None},
            "`mass` must be above 0 and at most 1; got 1.5.",
        ),
        (
            "exact_search",
            {"mass": 0.5},
            "`mass` says when a list of all outputs is long enough, but `nbest` is 1; set "
            "`nbest=None`.",
        ),
        (
            "forced_decoding",
            {"most": 0},
            "`most` must be at least 1, or None for all tokens with p > 0; got 0.",
        ),
        ("suggest", {"k": 0}, "`k` must be at least 1, or None for all tokens with p > 0; got 0."),
    ],
    ids=str,
)
def test_options(name, more, said):
    assert sentence(searches()[name], MODEL, SOURCE, LENGTHS, **more) == f"{name}: {said}"


def test_numpy_ints_are_ints():
    (result, _) = beam_search(MODEL, SOURCE, LENGTHS, beam=np.int64(2), nbest=np.int64(2))
    assert len(result.hypotheses) == 2


def test_targets():
    assert sentence(forced_decoding, MODEL, SOURCE, LENGTHS, ROWS[:1]) == (
        "forced_decoding: expected `target` with 2 rows, as many as `source`, but got 1."
    )
    assert sentence(forced_decoding, MODEL, SOURCE, LENGTHS, ROWS[0]) == (
        "forced_decoding: expected `target` to be an int64 tensor with one row per source, but got "
        "torch.int64 of shape (2,)."
    )


def test_a_vocabulary_too_small_for_its_table():
    assert sentence(Bigram, {1: {3: 1.0}}, 3) == (
        "Bigram: expected `vocabulary` of at least 4 for this table, but got 3."
    )
    assert Bigram({1: {3: 1.0}}, vocabulary=9).table.shape == (9, 9)
