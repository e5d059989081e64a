"""Whether a checkpoint belongs to the run that wants to resume from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fenchel._checks import FenchelError
from fenchel._short import short
from fenchel.training._checkpoint import Checkpoint


def check_same_run(checkpoint: Checkpoint, config: Mapping[str, Any], data: str) -> None:
    """Check that a checkpoint is of a run with this data and this config, as far as it matters.

    ``config`` has those fields only that a resumed run must not change, ``data`` is the digest of
    the training examples.
    """
    was = checkpoint.state.get("config", {})
    # As long as nothing was validated, what to validate by has decided nothing yet.
    free = _JUDGEMENT if checkpoint.state.get("validated_step") == -1 else ()
    for name, value in config.items():
        value = list(value) if isinstance(value, tuple) else value
        if was.get(name) != value and name not in free:
            raise FenchelError(
                f"{checkpoint.path}: expected to resume with {name} = {short(was.get(name))} as "
                f"the run was started, but got {short(value)}; use another directory to change it."
            )
    if checkpoint.state.get("data") != data:
        raise FenchelError(
            f"{checkpoint.path}: expected the training data that the run was started with, but "
            f"the examples are others or in another order; start a new run in another directory."
        )


_JUDGEMENT = ("metric", "mode")
