"""Whether a checkpoint belongs to the run that wants to resume from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fenchel._checks import FenchelError
from fenchel.training._batches import fingerprint
from fenchel.training._checkpoint import Checkpoint


def check_same_run(
    checkpoint: Checkpoint, config: Mapping[str, Any], lengths: Sequence[int]
) -> None:
    """Check that a checkpoint is of a run with this data and this config, as far as it matters.

    ``config`` has those fields only that a resumed run must not change.
    """
    was = checkpoint.state.get("config", {})
    for name, value in config.items():
        value = list(value) if isinstance(value, tuple) else value
        if was.get(name) != value:
            raise FenchelError(
                f"{checkpoint.path}: expected to resume with {name} = {was.get(name)!r} as the run "
                f"was started, but got {value!r}; use another directory to change it."
            )
    if checkpoint.state.get("data") != fingerprint(lengths):
        raise FenchelError(
            f"{checkpoint.path}: expected the training data that the run was started with, but "
            f"the number or the lengths of the examples differ; start a new run in another "
            f"directory."
        )
