"""What all ranks must know alike after a step: its loss and tokens, and whether to stop."""

from __future__ import annotations

from fenchel.training.distributed._ranks import Ranks


class Agreement:
    """One small message a step. One process alone agrees with itself at any time.

    Args:
        ranks: those that train together.
        elapsed: seconds that the run has taken so far, as the checkpoint has it.
    """

    def __init__(self, ranks: Ranks, elapsed: float) -> None:
        self._ranks = ranks
        self._elapsed, self._asked = elapsed, False

    def on_step(
        self, loss: float, tokens: int, *, asked: bool, elapsed: float
    ) -> tuple[float, int]:
        """The mean loss per token and the tokens of all ranks, from this rank's own."""
        if self._ranks.size == 1:
            return loss, tokens
        heard = self._ranks.gather_numbers((tokens, loss * tokens, asked, elapsed))
        counts, losses, stops, clocks = zip(*heard, strict=True)
        self._asked, self._elapsed = any(stops), clocks[0]
        return sum(losses) / max(sum(counts), 1), int(sum(counts))

    def on_stop(self, *, asked: bool, elapsed: float) -> tuple[bool, float]:
        """Whether any rank was asked to stop, and rank 0's clock: as of the last step."""
        return (asked, elapsed) if self._ranks.size == 1 else (self._asked, self._elapsed)
