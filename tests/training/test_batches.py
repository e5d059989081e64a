"""Batches of similar length: every example once, within the budget, decided by (seed, epoch)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenchel.training.batches import bucketed_batches, pair_length

lengths_strategy = st.lists(st.integers(1, 40), max_size=60)
units = st.sampled_from(["sentences", "tokens"])


def plan(lengths, unit="tokens", size=50, window=16, seed=0, epoch=1):
    return bucketed_batches(lengths, unit=unit, size=size, window=window, seed=seed, epoch=epoch)


@given(lengths_strategy, units, st.integers(1, 90), st.integers(1, 70), st.integers(0, 9))
def test_every_example_is_in_one_batch_within_the_budget(lengths, unit, size, window, seed):
    batches = plan(lengths, unit, size, window, seed)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        cost = len(batch) * (1 if unit == "sentences" else max(lengths[i] for i in batch))
        assert batch and (cost <= size or len(batch) == 1)


@given(lengths_strategy, units, st.integers(0, 5), st.integers(1, 5))
def test_the_order_depends_on_nothing_else(lengths, unit, seed, epoch):
    first = plan(lengths, unit, seed=seed, epoch=epoch)
    assert plan(tuple(lengths), unit, seed=seed, epoch=epoch) == first


def test_the_order_is_the_same_on_every_machine():
    assert plan([5, 3, 8, 1, 9, 2], "sentences", 2, 4) == [[5, 1], [3, 0], [2, 4]]


def test_seed_and_epoch_change_the_order():
    lengths = list(range(1, 41))
    orders = [plan(lengths), plan(lengths, seed=1), plan(lengths, epoch=2)]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_window_saves_padding():
    lengths = [1 + 7 * i % 31 for i in range(400)]

    def padded(window):
        batches = plan(lengths, "sentences", 8, window)
        return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)

    assert padded(400) < 1.05 * sum(lengths) < padded(16) < padded(8)


def test_an_example_over_the_budget_is_alone():
    assert sorted(map(sorted, plan([99, 2, 2], size=10))) == [[0], [1, 2]]


@pytest.mark.parametrize(("pair", "length"), [(("abc", "a"), 3), (("a", "abc"), 4)])
def test_length_of_a_pair_counts_the_end_mark(pair, length):
    assert pair_length(pair) == length
