"""What is refused before several processes start to train; the rest needs real ones."""

from __future__ import annotations

import pytest
import torch

from fenchel import FenchelError
from fenchel.training import TrainConfig
from fenchel.training.distributed._parallel import check_parallel
from fenchel.training.distributed._ranks import Ranks
from tests.training.tiny import TinyModel

SHARDED = TrainConfig(parallel="fsdp", vocabulary_parallel=True)


@pytest.fixture
def two() -> Ranks:
    ranks = Ranks()
    ranks.size = 2
    return ranks


def test_one_process_ignores_how_several_would_train():
    check_parallel(TinyModel(), SHARDED, Ranks())


def test_a_model_without_layers_to_shard(two):
    with pytest.raises(FenchelError, match="the model is TinyModel, which has none to shard"):
        check_parallel(TinyModel(), SHARDED, two)


def test_a_model_without_an_output_layer_to_deal_out(two):
    with pytest.raises(FenchelError, match=r"expects a model of fenchel\.models with its own loss"):
        check_parallel(TinyModel(), TrainConfig(vocabulary_parallel=True), two)


def test_an_old_torch(two, monkeypatch):
    check_parallel(TinyModel(), TrainConfig(), two)
    monkeypatch.setattr(torch, "__version__", "2.6.1+cpu")
    with pytest.raises(FenchelError) as error:
        check_parallel(TinyModel(), TrainConfig(), two)
    assert str(error.value) == (
        "Trainer: several processes need torch 2.7 or newer, but this is 2.6.1+cpu; train with one "
        "process, or install a newer torch."
    )
