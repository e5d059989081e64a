from __future__ import annotations

from torch import Tensor

from fenchel.integrations.transformers._library import transformers
from fenchel.maps import entmax
from fenchel.maps.alpha import ALPHA


class EntmaxLogitsProcessor(transformers.LogitsProcessor):
    r"""Processor of ``generate`` that turns scores into log-probabilities of entmax.

    .. math:: \theta \mapsto \log \operatorname{entmax}_\alpha(\theta)

    Outside the support that is exactly :math:`-\infty`, so sampling draws from entmax and from
    nothing else, with no threshold to choose; greedy search is as before, and beams add entmax's
    log-probabilities, so that a sequence of probability 0 is never kept over another.

    It needs neither ``top_k`` nor ``top_p``, which ``generate`` applies after it. Since ``top_k``
    is 50 unless told, pass ``top_k=0``; ``temperature`` too would act on the log-probabilities.

    Args:
        alpha: a number in (0, ∞]: that of the model's loss.

    Example:
        >>> from fenchel.integrations.transformers import EntmaxLogitsProcessor
        >>> scores = torch.tensor([[-2.0, 0.0, 0.5]])
        >>> EntmaxLogitsProcessor(alpha=2)(None, scores).exp()
        tensor([[0.0000, 0.2500, 0.7500]])
    """

    def __init__(self, alpha: float = 1.5) -> None:
        self.alpha = ALPHA.number("EntmaxLogitsProcessor", alpha)

    def __call__(self, input_ids: Tensor | None, scores: Tensor) -> Tensor:
        """Log-probabilities of the shape of ``scores``; the tokens so far do not matter."""
        if self.alpha == 1:  # probabilities would underflow, their logarithms do not
            return scores.log_softmax(-1)
        return entmax(scores, alpha=self.alpha).log()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha!r})"
