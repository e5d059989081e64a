from __future__ import annotations

import pytest
import torch

from fenchel import FenchelError
from fenchel.models import BOS, EOS, PAD, UNK, Batch
from tests.models import tiny


def test_special_tokens_come_first():
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


def test_collate_pads_and_ends_targets():
    batch = Batch.collate([([5, 6], [7]), ([5], [8, 9]), ((4, 4), ())])
    assert batch.source.tolist() == [[5, 6], [5, 0], [4, 4]]
    assert batch.source_lengths.tolist() == [2, 1, 2]
    assert batch.target.tolist() == [[7, 2, 0], [8, 9, 2], [2, 0, 0]]
    assert batch.decoder_input.tolist() == [[1, 7, 2], [1, 8, 9], [1, 2, 0]]
    assert batch.tokens == 6
    assert {batch.source.dtype, batch.source_lengths.dtype, batch.target.dtype} == {torch.int64}


def test_to_moves_all_but_the_lengths():
    moved = tiny.batch().to("meta")
    assert moved.source.is_meta and moved.target.is_meta
    assert moved.source_lengths.device.type == "cpu"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "Batch.collate: expected at least one pair, but got none."),
        (
            [([4], [4]), ([], [4])],
            "Batch.collate: expected sources of at least one token, but the source of pair 1 is "
            "empty.",
        ),
    ],
)
def test_collate_refuses(pairs, message):
    with pytest.raises(FenchelError) as caught:
        Batch.collate(pairs)
    assert str(caught.value) == message


SOURCE = torch.tensor([[5, 6, 7], [5, 0, 0]])
LENGTHS = torch.tensor([3, 1])
TARGET = torch.tensor([[5, 2], [2, 0]])


@pytest.mark.parametrize(
    ("source", "lengths", "target", "message"),
    [
        (
            SOURCE,
            LENGTHS,
            TARGET + 9,
            "expected ids in `target` from 0 to 10, as the vocabulary has 11, but got 14.",
        ),
        (
            SOURCE + 9,
            LENGTHS,
            TARGET,
            "expected ids in `source` from 0 to 11, as the vocabulary has 12, but got 16.",
        ),
        (
            -SOURCE,
            LENGTHS,
            TARGET,
            "expected ids in `source` from 0 to 11, as the vocabulary has 12, but got -7.",
        ),
        (
            SOURCE,
            LENGTHS + 1,
            TARGET,
            "expected `source_lengths` from 1 to 3, the width of `source`, but got 4.",
        ),
        (
            SOURCE,
            LENGTHS - 1,
            TARGET,
            "expected `source_lengths` from 1 to 3, the width of `source`, but got 0.",
        ),
        (
            SOURCE,
            LENGTHS[:1],
            TARGET,
            "expected one of `source_lengths` for each of 2 sources, but got shape (1,).",
        ),
        (
            SOURCE,
            LENGTHS.float(),
            TARGET,
            "expected `source_lengths` to be an int64 tensor, but got torch.float32.",
        ),
        (
            SOURCE,
            LENGTHS,
            TARGET[:1],
            "expected as many targets as sources, 2, but got 1.",
        ),
        (
            SOURCE,
            LENGTHS,
            TARGET.new_full((2, 1), 1),
            "expected `target` without BOS (1); the decoder puts it in front.",
        ),
        (
            SOURCE,
            LENGTHS,
            TARGET * 0,
            "expected a target token that is not PAD, but all are.",
        ),
        (
            SOURCE[:, :0],
            LENGTHS,
            TARGET,
            "expected `source` of at least one token, but it is empty.",
        ),
        (
            SOURCE[0],
            LENGTHS,
            TARGET,
            "expected `source` to be an int64 tensor of 2 dimensions, but got torch.int64, 1-d.",
        ),
        (
            SOURCE.tolist(),
            LENGTHS,
            TARGET,
            "expected `source` to be an int64 tensor of 2 dimensions, but got list.",
        ),
        (
            SOURCE[:0],
            LENGTHS[:0],
            TARGET[:0],
            "expected `source` of at least one row, but it has none.",
        ),
    ],
)
def test_models_refuse(source, lengths, target, message):
    model = tiny.model("lstm")
    with pytest.raises(FenchelError) as caught:
        model.loss(Batch(source, lengths, target))
    assert str(caught.value) == f"LSTMSeq2Seq: {message}"


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_steps_refuse(kind):
    model, other = tiny.model(kind), tiny.model("lstm" if kind == "transformer" else "transformer")
    state = model.start(SOURCE, LENGTHS)
    name = type(model).__name__
    with pytest.raises(FenchelError) as caught:
        model.step(state, torch.tensor([1]))
    assert str(caught.value) == (
        f"{name}: expected one of `tokens` for each of the state's 2 rows, but got 1."
    )
    with pytest.raises(FenchelError, match="expected ids in `tokens` from 0 to 10"):
        model.step(state, torch.tensor([1, 11]))
    with pytest.raises(FenchelError, match=r"step: expected a state of this model's `start`"):
        other.step(state, torch.tensor([1, 1]))
