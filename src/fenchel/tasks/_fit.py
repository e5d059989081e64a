"""Defaults that suit the size of the training data.

An epoch of 12,000 lines is some two hundred updates, one of 120 lines is two. If the defaults
counted epochs and validations, a small training would have its learning rate cut and be given up
before it has learned anything. So they count updates, and the settings of a run say what that is in
epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from fenchel.runs import override
from fenchel.tasks._run_config import RunConfig

UPDATES = 3000  # at least, unless max_epochs is set
BETWEEN = 50  # at least between two validations, unless max_epochs is set
CUT = 150  # at least without improvement, before the learning rate is cut
GIVE_UP = 1000  # at least without improvement, before training ends


def fit(default: RunConfig, settings: Sequence[str], pairs: Sequence[Any]) -> RunConfig:
    """The default config for so much data, and the settings in it.

    Args:
        default: of task and model.
        settings: what is set stays as it is set.
        pairs: the training data.
    """
    said = {setting.partition("=")[0].strip() for setting in settings}
    config = override(default, settings)
    epoch = _updates_per_epoch(config, pairs)
    train = default.train
    assert train.max_epochs is not None and train.patience is not None
    if "train.max_epochs" not in said and epoch * train.max_epochs < UPDATES:
        train = replace(train, max_epochs=ceil(UPDATES / epoch))
        if epoch < BETWEEN:
            train = replace(train, validate_every=BETWEEN)
    fitted = override(replace(default, train=train), settings).train
    between = fitted.validate_every or epoch
    total = min(
        (fitted.max_epochs or 2**53) * epoch, fitted.max_steps or 2**53
    )  # an end by the clock is not known
    train = replace(
        train,
        patience=max(train.patience or 1, ceil(GIVE_UP / between)),
        plateau_patience=max(train.plateau_patience, ceil(CUT / between) - 1),
        warmup_steps=max(1, min(train.warmup_steps, total // 10)),
    )
    return override(replace(default, train=train), settings)


def _updates_per_epoch(config: RunConfig, pairs: Sequence[Any]) -> int:
    from fenchel.training import bucketed_batches, pair_length  # not needed to predict

    train = config.train
    return len(
        bucketed_batches(
            [pair_length(pair) for pair in pairs],
            unit=train.batch_unit,
            size=train.batch_size,
            window=train.bucket_window,
            seed=train.seed,
            epoch=1,
        )
    )
