from __future__ import annotations

import torch
from torch import Tensor

from fenchel.nn._structured_layer import StructuredLayer
from fenchel.structures import Sequence, SequenceScores


class LinearChain(StructuredLayer):
    r"""Tag scores (*batch, T, K) to mean tags of the same shape, with learned transitions.

    With ``"marginals"`` it is a linear-chain conditional random field, with ``"sparsemap"`` a mean
    of few tag sequences. Parameters: ``transitions`` (K, K), indexed [from, to], ``start`` (K,)
    and ``end`` (K,), all 0 at first.

    Args:
        n_tags: K.
        omega: ``"sparsemap"``, ``"marginals"``, ``"smoothed_dp"`` or ``"map"``.
        gamma: the temperature, a number above 0.

    Example:
        >>> chain = fy.nn.LinearChain(2, "marginals")
        >>> chain(torch.zeros(3, 2)).detach()
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000],
                [0.5000, 0.5000]])
        >>> chain.loss(torch.zeros(3, 2), torch.tensor([0, 1, 1])).detach()  # log 8
        tensor(2.0794)
    """

    def __init__(self, n_tags: int, omega: str = "sparsemap", gamma: float = 1.0) -> None:
        super().__init__(Sequence(n_tags), omega, gamma)
        self.transitions = torch.nn.Parameter(torch.zeros(n_tags, n_tags))
        self.start = torch.nn.Parameter(torch.zeros(n_tags))
        self.end = torch.nn.Parameter(torch.zeros(n_tags))

    def forward(
        self, scores: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The mean tags, in the shape of ``scores``.

        Args:
            scores: of the tags at each position; ``-inf`` is a mask.
            lengths: of the sequences, shape (*batch), if they differ.
            mask: boolean, True where a tag may be used.
        """
        return self.omega.predict(self._scores(scores), lengths=lengths, mask=mask).emissions

    def _scores(self, scores: Tensor) -> SequenceScores:
        return SequenceScores(scores, self.transitions, self.start, self.end)
