"""Schedules, to the number."""

from __future__ import annotations

import json

import pytest

from fenchel.training import Constant, InverseSqrt, Linear, Plateau, make_schedule
from tests.training.tiny import config_with, trainer


def test_constant():
    assert [Constant(0.3).rate(step) for step in (1, 10, 10**6)] == [0.3] * 3


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.02), (2, 0.04), (4, 0.08), (16, 0.04), (64, 0.02), (400, 0.008)]
)
def test_inverse_sqrt(step, rate):
    assert InverseSqrt(0.08, 4).rate(step) == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize(
    ("patience", "rates"),
    [(0, [1.0, 0.5, 0.5, 0.25, 0.125, 0.125]), (1, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5])],
)
def test_plateau(patience, rates):
    schedule, found = Plateau(1.0, 0.5, patience), []
    for improved in (True, False, True, False, False, True):
        schedule.validated(improved)
        found.append(schedule.rate(1))
    assert found == rates


@pytest.mark.parametrize("name", ["plateau", "inverse_sqrt", "constant"])
def test_state_is_json_and_comes_back(name):
    config = config_with(schedule=name, plateau_patience=1)
    first, second = make_schedule(config), make_schedule(config)
    for improved in (False, False, False):
        first.validated(improved)
    second.load(json.loads(json.dumps(first.state())))
    for improved in (False, True, False, False):
        first.validated(improved)
        second.validated(improved)
        assert first.rate(7) == second.rate(7)
    assert first.state() == second.state()


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.02), (2, 0.04), (4, 0.08), (7, 0.04), (10, 0.0), (11, 0.0)]
)
def test_linear(step, rate):
    assert Linear(0.08, 4, 9).rate(step) == pytest.approx(rate, rel=1e-15)


def test_linear_ends_above_zero():
    assert Linear(0.08, 4, 9).rate(9) > 0 < Linear(0.08, 20, 9).rate(9)


def test_linear_of_a_config():
    config = config_with(schedule="linear", max_steps=7, warmup_steps=3, learning_rate=0.5)
    assert make_schedule(config) == Linear(0.5, 3, 7)


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
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert rates == [0.02] * 8 + [0.01]
