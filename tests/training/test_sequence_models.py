"""The loop with the library's own models: it learns, and resumes bit for bit."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch

from fenchel.models import Batch, build_model, model_config
from fenchel.runs import load_checkpoint
from fenchel.training import TrainConfig, Trainer
from tests.training.killed import outcome

SIZES = {
    "lstm": {"embedding": 16, "hidden": 16, "layers": 1, "attention": "entmax:learned"},
    "transformer": {"width": 16, "heads": 2, "feedforward": 32, "layers": 1},
}


def reversed_words(count=120):
    draw = random.Random(0)
    words = [[draw.randint(4, 11) for _ in range(draw.randint(1, 4))] for _ in range(count)]
    return [(word, word[::-1]) for word in words]


def run(kind, run_dir, epochs, resume=False, **fields):
    config = model_config(kind, source_vocabulary=12, target_vocabulary=12, **SIZES[kind])
    torch.manual_seed(3)
    pairs = reversed_words()
    return Trainer(
        build_model(config),
        pairs,
        TrainConfig(
            batch_unit="tokens", batch_size=150, max_epochs=epochs, learning_rate=0.01, **fields
        ),
        run_dir,
        collate=Batch.collate,
        validate=lambda model: {"loss": model.loss(Batch.collate(pairs)).item()},
        extra={"model": dataclasses.asdict(config)},
        show_progress=False,
    ).run(resume=resume)


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("kind", SIZES)
def test_it_learns_and_resumes_bit_for_bit(tmp_path, kind, bf16):
    run(kind, tmp_path / "straight", 3, bf16=bf16, log_every=2)
    first = run(kind, tmp_path / "stopped", 1, bf16=bf16, log_every=2)
    last = run(kind, tmp_path / "stopped", 3, resume=True, bf16=bf16, log_every=2)
    assert last.best < first.best
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def test_the_best_weights_and_their_config_make_the_model_again(tmp_path):
    result = run("lstm", tmp_path, 2)
    best = load_checkpoint(tmp_path)
    model = build_model(model_config(**best.state["extra"]["model"]))
    best.load_weights(model)
    model.eval()
    with torch.no_grad():
        assert model.loss(Batch.collate(reversed_words())).item() == result.best
