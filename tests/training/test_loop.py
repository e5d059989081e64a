"""The loop as a whole: it learns, reports, and stops with a sentence when it must."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch

from fenchel import FenchelError
from fenchel.runs import load_config
from fenchel.training import TrainConfig, TrainingError, _session
from tests.training.killed import outcome
from tests.training.tiny import TinyModel, collate, trainer, validate


def records(run_dir, kind=None):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if kind is None or r["kind"] == kind]


def test_it_learns(tmp_path):
    result = trainer(tmp_path, max_epochs=20).run()
    losses = [r["metrics"]["loss"] for r in records(tmp_path, "validation")]
    assert len(losses) == 20
    assert losses[-1] < 0.6 * losses[0]
    assert result.reason == "max_epochs"
    assert (result.step, result.epoch) == (100, 20)
    assert result.best == min(losses)


def test_the_config_is_stored_with_the_run(tmp_path):
    trained = trainer(tmp_path, learning_rate=1e-4)
    trained.run()
    assert load_config(TrainConfig, tmp_path / "config.yaml") == trained.config


def test_logged_losses_are_means_per_token(tmp_path):
    seen = []

    def loss(model, batch):
        value = model.loss(batch)
        seen.append((value.item(), batch.tokens))
        return value

    trainer(tmp_path, loss=loss, max_epochs=1, log_every=5).run()
    total = sum(tokens for _, tokens in seen)
    (record,) = records(tmp_path, "train")
    assert record["loss"] == pytest.approx(sum(v * n for v, n in seen) / total, rel=1e-12)
    assert record["tokens"] == total


def test_tokens_per_second_leave_out_validation(tmp_path, monkeypatch):
    """A clock on which a batch takes 2 seconds, and a validation 1000."""
    now = [0.0]
    monkeypatch.setattr(_session, "clock", lambda: now[0])

    def slow(examples):
        now[0] += 2.0
        return collate(examples)

    def slower(model):
        now[0] += 1000.0
        return validate(model)

    result = trainer(
        tmp_path, collate=slow, validate=slower, validate_every=1, max_epochs=1, log_every=5
    ).run()
    (record,) = records(tmp_path, "train")
    assert result.tokens_per_second == record["tokens_per_second"] == record["tokens"] / 10.0
    assert result.seconds == 5010.0


def test_validation_is_in_eval_mode_without_gradients(tmp_path):
    modes = []

    def looking(model):
        modes.append((model.training, torch.is_grad_enabled()))
        return validate(model)

    def loss(model, batch):
        modes.append((model.training, torch.is_grad_enabled()))
        return model.loss(batch)

    trainer(tmp_path, validate=looking, loss=loss, max_steps=2, validate_every=1).run()
    assert modes == [(True, True), (False, False)] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_with_the_last_checkpoint(tmp_path, value):
    trainer(tmp_path, max_epochs=1).run()
    good = outcome(tmp_path)
    calls = []

    def loss(model, batch):
        calls.append(batch)
        return model.loss(batch) * (value if len(calls) == 3 else 1.0)

    with pytest.raises(TrainingError) as error:
        trainer(tmp_path, max_epochs=2, loss=loss).run(resume=True)
    path = tmp_path / "checkpoints" / "step-00000005"
    assert str(error.value) == (
        f"the loss is {value} at step 8 (epoch 2, batch 3 of 5); lower learning_rate or "
        f"clip_norm: the checkpoint {path} is kept."
    )
    found = outcome(tmp_path)
    assert all(found[name] == good[name] for name in good if name != "records")


def test_a_loss_that_grows_without_end_stops_too(tmp_path):
    """It is a number, but training has diverged all the same."""
    calls = []

    def loss(model, batch):
        calls.append(batch)
        return model.loss(batch) * (1e7 if len(calls) == 3 else 1.0)

    with pytest.raises(
        TrainingError, match=r"the loss is 2\.\d+e\+07 at step 3 \(epoch 1, batch 3"
    ):
        trainer(tmp_path, loss=loss).run()


def test_a_loss_that_ends_far_above_its_start_is_no_success(tmp_path):
    calls = []

    def loss(model, batch):
        calls.append(batch)
        return model.loss(batch) * (100 if len(calls) > 2 else 1.0)

    with pytest.raises(TrainingError) as error:
        trainer(tmp_path, loss=loss, max_epochs=1).run()
    path = tmp_path / "checkpoints" / "step-00000005"
    assert re.fullmatch(
        rf"the loss is \d+\.?\d* at the last step, but was 3\.\d+ at the first; lower "
        rf"learning_rate or clip_norm: the checkpoint {path} is kept\.",
        str(error.value),
    )
    again = trainer(tmp_path, max_epochs=1).run(resume=True)  # nothing is left to do
    assert again.reason == "max_epochs"


def test_a_gradient_that_is_no_number_stops_too(tmp_path):
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, loss):
            return loss.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.nan

    model = TinyModel()
    before = model.hidden.weight.clone()
    with pytest.raises(TrainingError, match="the gradient's norm is nan at step 1"):
        trainer(tmp_path, model=model, loss=lambda m, b: Steep.apply(m.loss(b))).run()
    assert torch.equal(model.hidden.weight, before)


def test_a_validation_that_is_no_number_is_never_best(tmp_path):
    values = iter([math.nan, 5.0, math.nan])
    result = trainer(tmp_path, validate=lambda model: {"loss": next(values)}).run()
    assert (result.best, result.best_step) == (5.0, 10)
    found = [r["metrics"]["loss"] for r in records(tmp_path, "validation")]
    assert found == [None, 5.0, None]


def test_no_examples(tmp_path):
    with pytest.raises(FenchelError) as error:
        trainer(tmp_path, examples=[])
    assert str(error.value) == (
        "Trainer: expected at least one training example, but there are none."
    )


@pytest.mark.parametrize("length", [0, -1, 2.0])
def test_a_length_that_is_none(tmp_path, length):
    with pytest.raises(FenchelError) as error:
        trainer(tmp_path, examples=[[1, 2]], length=lambda example: length)
    assert str(error.value) == (
        f"Trainer: expected the length of each example to be an int of at least 1, but got "
        f"{length!r} for example 0."
    )


def test_a_metric_that_validation_does_not_return(tmp_path):
    with pytest.raises(FenchelError) as error:
        trainer(tmp_path, metric="accuracy").run()
    assert str(error.value) == (
        "Trainer: expected `validate` to return the metric 'accuracy', but got loss; set `metric` "
        "to one of them."
    )


def test_a_wrong_metric_does_not_ruin_the_run(tmp_path):
    with pytest.raises(FenchelError, match="to return the metric 'accuracy', but got loss"):
        trainer(tmp_path, metric="accuracy", mode="max").run()
    assert trainer(tmp_path).run(resume=True).best is not None
    with pytest.raises(FenchelError, match="expected to resume with metric = 'loss' as the run"):
        trainer(tmp_path, metric="accuracy").run(resume=True)


def test_frozen_parameters_stay(tmp_path):
    model = TinyModel()
    model.hidden.requires_grad_(False)
    before = model.hidden.weight.clone()
    trainer(tmp_path, model=model, weight_decay=0.1, max_epochs=1).run()
    trainer(tmp_path, model=model, weight_decay=0.1, max_epochs=2).run(resume=True)
    assert torch.equal(model.hidden.weight, before)
