"""Defaults learn from 120 lines as from 12,000."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fenchel.tasks import DataConfig, Inflection, start_run, train_run
from fenchel.tasks.run_config import default_config, fit

ENDINGS = {"V;PST": "ed", "V;PRS": "s", "V;PTCP": "ing"}


def regular(count: int) -> list[str]:
    """Lines of a language without exceptions."""
    draw = random.Random(0)
    lines = set()
    while len(lines) < count:
        pairs = [
            draw.choice("bdklmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 2))
        ]
        stem, tag = "".join(pairs) + draw.choice("bdklmnprst"), draw.choice(sorted(ENDINGS))
        lines.add(f"{stem}\t{stem}{ENDINGS[tag]}\t{tag}\n")
    return draw.sample(sorted(lines), count)


def write(folder: Path, name: str, lines: list[str]) -> tuple[str]:
    (folder / name).write_text("".join(lines))
    return (str(folder / name),)


@pytest.mark.parametrize(("count", "least"), [(120, 0.5), (12_000, 0.9)])
def test_it_learns(tmp_path, count, least):
    """The size of the model and the end are set, and nothing of how to train."""
    lines = regular(count + 50)
    data = DataConfig(write(tmp_path, "x-train", lines[50:]), write(tmp_path, "x-dev", lines[:50]))
    settings = ["model.hidden=64", "model.embedding=32", "model.layers=1", "train.max_steps=190"]
    run = start_run(tmp_path / "run", "inflection", data, settings=settings)
    result = train_run(run, show_progress=False)
    assert result.step == 190 and result.best > least


def fitted(pairs: int, *settings: str, model="lstm"):
    return fit(default_config(Inflection, model), settings, [([5], [6])] * pairs).train


def test_what_is_counted_in_epochs_follows_the_size():
    small, large = fitted(120), fitted(12_000)
    assert (small.max_epochs, small.validate_every) == (1500, 50)
    assert (small.patience, small.plateau_patience) == (20, 2)
    assert (large.max_epochs, large.validate_every) == (30, None)
    assert (large.patience, large.plateau_patience) == (10, 0)


def test_what_is_set_stays():
    every = ["train.max_epochs=7", "train.patience=3", "train.plateau_patience=0"]
    found = fitted(120, *every, "train.warmup_steps=4000")
    assert (found.max_epochs, found.patience, found.plateau_patience) == (7, 3, 0)
    assert (found.validate_every, found.warmup_steps) == (None, 4000)
    # Validations after each of 100 epochs of two updates must not end it either.
    found = fitted(120, "train.max_epochs=100")
    assert (found.validate_every, found.patience, found.plateau_patience) == (None, 500, 74)


def test_a_warm_up_ends_before_the_training():
    assert fitted(120, model="transformer").warmup_steps == 300
    assert fitted(12_000, model="transformer").warmup_steps == 564
    assert fitted(10**6, "train.max_epochs=null", model="transformer").warmup_steps == 4000
