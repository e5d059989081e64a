"""What goes wrong during training, as opposed to a wrong argument."""

from __future__ import annotations


class TrainingError(RuntimeError):
    """Training cannot go on: a loss that is no number, or a full disk. One sentence says which."""
