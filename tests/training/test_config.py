"""Every field of TrainConfig changes something, and a wrong value is named."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
import torch

from fenchel import FenchelError
from fenchel.training import TrainConfig, _session
from tests.training.killed import outcome
from tests.training.tiny import TinyModel, collate, trainer, validate

# What changes the weights after three epochs: each with what it is compared to.
WEIGHTS = {
    "batch_unit": ({}, {"batch_unit": "tokens"}),
    "batch_size": ({}, {"batch_size": 4}),
    "bucket_window": ({}, {"bucket_window": 1}),
    "optimizer": ({"weight_decay": 0.1}, {"weight_decay": 0.1, "optimizer": "adamw"}),
    "learning_rate": ({}, {"learning_rate": 0.01}),
    "betas": ({}, {"betas": (0.9, 0.98)}),
    "weight_decay": ({}, {"weight_decay": 0.1}),
    "schedule": ({}, {"schedule": "inverse_sqrt"}),
    "plateau_factor": ({"mode": "max"}, {"mode": "max", "plateau_factor": 0.1}),
    "plateau_patience": ({"mode": "max"}, {"mode": "max", "plateau_patience": 1}),
    "warmup_steps": ({"schedule": "inverse_sqrt"}, {"schedule": "inverse_sqrt", "warmup_steps": 5}),
    "clip_norm": ({}, {"clip_norm": 0.1}),
    "bf16": ({}, {"bf16": True}),
    "seed": ({}, {"seed": 1}),
    "mode": ({}, {"mode": "max"}),
    "max_epochs": ({}, {"max_epochs": 2}),
    "max_steps": ({}, {"max_steps": 4}),
}
# What has a test of its own below, or in another file.
OTHERS = {
    "device": "test_a_device_that_is_not_there",
    "threads": "test_threads",
    "max_minutes": "test_max_minutes",
    "validate_every": "test_validate_every",
    "metric": "test_metric",
    "patience": "test_patience",
    "log_every": "test_log_every",
    "checkpoint_every": "test_checkpoint_every",
    "keep_checkpoints": "test_the_best_and_the_last_ones_are_kept",
    "tensorboard": "test_tensorboard",
    "parallel": "distributed/test_ranks.py",
    "vocabulary_parallel": "distributed/test_ranks.py",
    "timeout_minutes": "distributed/test_ranks.py",
}


def test_every_field_is_tested():
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    assert names == WEIGHTS.keys() | OTHERS.keys()


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_field_changes_the_weights(tmp_path, name):
    runs = [trainer(tmp_path / str(i), **changes) for i, changes in enumerate(WEIGHTS[name])]
    for run in runs:
        run.run()
    one, other = (run.model.state_dict() for run in runs)
    assert not torch.equal(one["hidden.weight"], other["hidden.weight"])


def test_no_clipping_is_a_high_limit(tmp_path):
    for name, limit in (("none", None), ("high", 1e9)):
        trainer(tmp_path / name, clip_norm=limit).run()
    none, high = outcome(tmp_path / "none"), outcome(tmp_path / "high")
    assert none["latest/model.safetensors"] == high["latest/model.safetensors"]


def test_a_device_that_is_not_there(tmp_path):
    with pytest.raises(FenchelError, match="expected `device` to be one that torch can use here,"):
        trainer(tmp_path / "run", device="nowhere").run()
    assert not (tmp_path / "run").exists()


def test_threads(tmp_path):
    seen = []

    def watching(model):
        seen.append(torch.get_num_threads())
        return validate(model)

    before = torch.get_num_threads()
    trainer(tmp_path, threads=before + 1, max_epochs=1, validate=watching).run()
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


def test_max_minutes(tmp_path, monkeypatch):
    """A clock on which each batch takes a minute and a half."""
    now = [0.0]
    monkeypatch.setattr(_session, "clock", lambda: now[0])

    def slow(examples):
        now[0] += 90.0
        return collate(examples)

    assert trainer(tmp_path, max_minutes=4.0, collate=slow).run().step == 3
    # The time of both sessions counts.
    result = trainer(tmp_path, max_minutes=7.0, collate=slow).run(resume=True)
    assert (result.reason, result.step, result.seconds) == ("max_minutes", 5, 450.0)


def lines(run_dir, kind):
    found = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line for line in found if line["kind"] == kind]


@pytest.mark.parametrize(
    ("every", "steps"), [(None, [5, 10, 15]), (4, [4, 8, 12, 15]), (5, [5, 10, 15])]
)
def test_validate_every(tmp_path, every, steps):
    trainer(tmp_path, validate_every=every).run()
    assert [line["step"] for line in lines(tmp_path, "validation")] == steps


def test_metric(tmp_path):
    values = iter([(1.0, 3.0), (2.0, 1.0), (3.0, 2.0)])

    def both(model):
        return dict(zip(("up", "other"), next(values), strict=True))

    result = trainer(tmp_path, metric="other", validate=both).run()
    assert (result.best, result.best_step) == (1.0, 10)
    assert result.metrics == {"up": 3.0, "other": 2.0}


def test_patience(tmp_path):
    values = iter([3.0, 2.0, 2.0, 2.5, 1.0])
    result = trainer(
        tmp_path, patience=2, max_epochs=None, validate=lambda model: {"loss": next(values)}
    ).run()
    assert (result.reason, result.epoch, result.best, result.best_step) == ("patience", 4, 2.0, 10)


def test_log_every(tmp_path):
    trainer(tmp_path, log_every=6).run()
    assert [line["step"] for line in lines(tmp_path, "train")] == [6, 12]


def test_checkpoint_every(tmp_path):
    trainer(tmp_path, checkpoint_every=3, keep_checkpoints=100).run()
    steps = sorted(int(path.name[5:]) for path in (tmp_path / "checkpoints").iterdir())
    assert steps == [0, 3, 5, 6, 9, 10, 12, 15]


def test_how_often_it_validates_and_saves_does_not_change_the_weights(tmp_path):
    def drawing(model):
        torch.rand(3)
        return validate(model)

    trainer(tmp_path / "a", schedule="constant").run()
    trainer(
        tmp_path / "b", schedule="constant", validate_every=2, checkpoint_every=1, validate=drawing
    ).run()
    a, b = outcome(tmp_path / "a"), outcome(tmp_path / "b")
    assert a["latest/model.safetensors"] == b["latest/model.safetensors"]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("batch_size", 0, "an int of at least 1"),
        ("batch_size", True, "an int of at least 1"),
        ("max_steps", 0, "an int of at least 1, or None"),
        ("seed", -1, "an int of at least 0"),
        ("clip_norm", 0.0, "a number above 0, or None"),
        ("learning_rate", float("nan"), "a number above 0"),
        ("learning_rate", "1e-3", "a number above 0"),
        ("plateau_factor", 1.0, "between 0 and 1"),
        ("weight_decay", -0.1, "a number of at least 0"),
        ("betas", (0.9, 1.0), "two numbers of at least 0 and below 1"),
        ("betas", 0.9, "two numbers of at least 0 and below 1"),
        ("batch_unit", "words", "one of sentences, tokens"),
        ("optimizer", "sgd", "one of adam, adamw"),
        ("schedule", "cosine", "one of plateau, inverse_sqrt, linear, constant"),
        ("mode", "up", "one of min, max"),
        ("seed", 2**63, "an int of at most 9223372036854775807"),
        ("threads", 3_000_000_000, "an int of at most 1024, or None"),
        ("max_steps", 2**60, f"an int of at most {2**53}, or None"),
        ("learning_rate", 1e30, "a number of at most 10"),
        ("timeout_minutes", 1e300, "a number of at most 525600"),
        ("bf16", 1, "True or False"),
        ("metric", None, "text"),
    ],
)
def test_errors(field, value, expected):
    with pytest.raises(FenchelError) as error:
        TrainConfig(**{field: value})
    assert str(error.value) == (
        f"TrainConfig: expected `{field}` to be {expected}, but got {value!r}."
    )


def test_a_run_without_an_end():
    with pytest.raises(FenchelError) as error:
        TrainConfig(max_epochs=None)
    assert str(error.value) == (
        "TrainConfig: expected a limit, but `max_epochs`, `max_steps`, `max_minutes` and "
        "`patience` are all None; set one of them."
    )


def test_the_clock_is_not_the_wall():
    """A change of the system's time must not stop a run."""
    assert _session.clock is time.perf_counter


def test_plateau_halves_the_rate_in_the_run(tmp_path):
    values = iter([3.0, 4.0, 2.0, 2.0, 2.0])
    trainer(
        tmp_path,
        model=TinyModel(),
        max_epochs=5,
        log_every=5,
        validate=lambda model: {"loss": next(values)},
    ).run()
    rates = [line["learning_rate"] for line in lines(tmp_path, "train")]
    assert rates == [0.02, 0.02, 0.01, 0.01, 0.005]


def test_linear_needs_its_end():
    with pytest.raises(FenchelError) as error:
        TrainConfig(schedule="linear")
    assert str(error.value) == (
        "TrainConfig: expected `max_steps` with the schedule linear, which ends there, but got "
        "None."
    )
