"""Schedules, to the number."""

from __future__ import annotations

import json

import pytest
import torch

from fenchel import FenchelError
from fenchel.training._schedule import Schedule
from tests.training.tiny import config_with, trainer


def make(step: int = 0, **changes) -> tuple[Schedule, torch.optim.Optimizer]:
    config = config_with(**changes)
    parameters = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)]
    optimizer = torch.optim.Adam(parameters, lr=config.learning_rate)
    return Schedule(optimizer, config, step), optimizer


def rates(count: int, step: int = 0, **changes) -> list[float]:
    """The learning rates of some updates, which are those of all groups of the optimizer."""
    schedule, optimizer = make(step, **changes)
    found = []
    for _ in range(count):
        found.append(schedule.rate)
        assert [group["lr"] for group in optimizer.param_groups] == found[-1:] * 2
        optimizer.step()
        schedule.updated()
    return found


def test_constant():
    assert rates(20, schedule="constant", learning_rate=0.3) == [0.3] * 20
    assert rates(1, 10**6, schedule="constant", learning_rate=0.3) == [0.3]


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.02), (2, 0.04), (4, 0.08), (16, 0.04), (64, 0.02), (400, 0.008)]
)
def test_inverse_sqrt(step, rate):
    settings = {"schedule": "inverse_sqrt", "learning_rate": 0.08, "warmup_steps": 4}
    found = rates(step, **settings)
    assert found[-1] == pytest.approx(rate, rel=1e-15)
    assert rates(1, step - 1, **settings) == found[-1:]  # as a run that was resumed


@pytest.mark.parametrize(
    ("patience", "rates"),
    [(0, [1.0, 0.5, 0.5, 0.25, 0.125, 0.125]), (1, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5])],
)
def test_plateau(patience, rates):
    schedule, optimizer = make(learning_rate=1.0, plateau_factor=0.5, plateau_patience=patience)
    found = []
    for improved in (True, False, True, False, False, True):
        optimizer.step()
        schedule.updated()
        schedule.validated(improved)
        found.append(schedule.rate)
        assert [group["lr"] for group in optimizer.param_groups] == found[-1:] * 2
    assert found == rates


def test_plateau_before_anything_has_improved():
    schedule, _ = make(learning_rate=1.0, plateau_patience=1)
    for _ in range(2):
        schedule.validated(False)
    assert schedule.rate == 0.5


def test_no_learning_rate_is_too_small_to_be_cut():
    schedule, _ = make(learning_rate=1e-12, plateau_patience=0)
    schedule.validated(False)
    assert schedule.rate == 5e-13


@pytest.mark.parametrize("name", ["plateau", "inverse_sqrt", "constant"])
def test_state_is_json_and_comes_back(name):
    settings = {"schedule": name, "plateau_patience": 1}
    first, second = make(**settings)[0], make(**settings)[0]
    for improved in (False, False, False):
        first.validated(improved)
    second.load(json.loads(json.dumps(first.state())))
    assert first.rate == second.rate
    for improved in (False, True, False, False):
        first.validated(improved)
        second.validated(improved)
        assert first.rate == second.rate
    assert first.state() == second.state()
    assert (first.state() == {}) == (name != "plateau")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"learning_rate": 0.1},
        {"learning_rate": "0.1", "waited": 0},
        {"learning_rate": -0.1, "waited": 0},
        {"learning_rate": 0.1, "waited": 2},
        {"learning_rate": 0.1, "waited": True},
    ],
)
def test_a_damaged_state(wrong):
    with pytest.raises(FenchelError) as error:
        make(plateau_patience=1)[0].load(wrong)
    assert str(error.value) == (
        f"checkpoint: expected the learning rate of the schedule plateau, but got {wrong}; "
        "state.json is damaged."
    )


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.02), (2, 0.04), (4, 0.08), (7, 0.04), (10, 0.0), (11, 0.0)]
)
def test_linear(step, rate):
    settings = {"schedule": "linear", "learning_rate": 0.08, "warmup_steps": 4, "max_steps": 9}
    assert rates(step, **settings)[-1] == pytest.approx(rate, rel=1e-15)
    assert rates(1, step - 1, **settings)[0] == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize("warmup", [4, 20])
def test_linear_ends_above_zero(warmup):
    assert rates(9, schedule="linear", warmup_steps=warmup, max_steps=9)[-1] > 0


def test_a_metric_that_has_not_moved_counts_for_nothing(tmp_path):
    """Accuracy is 0 at first, however well a model learns: no reason to cut, or to stop."""
    values = iter([0.0] * 6 + [0.1, 0.0, 0.0])
    trainer(
        tmp_path,
        max_epochs=9,
        log_every=5,
        patience=5,
        mode="max",
        validate=lambda model: {"loss": next(values)},
    ).run()
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    found = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert found == [0.02] * 8 + [0.01]
