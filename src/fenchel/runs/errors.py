"""What goes wrong with a run, as opposed to a wrong argument."""

from __future__ import annotations


class TrainingError(RuntimeError):
    """Training cannot go on: a loss that is no number, or a full disk. One sentence says which."""


class RankError(TrainingError):
    """Another rank has ended the run and says why; this one ends with it, and need say nothing."""
