from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, Parameter, init

from fenchel._checks import FenchelError
from fenchel._dtypes import full_precision
from fenchel.losses import linear_entmax_loss, linear_sparse_entmax
from fenchel.maps import entmax, softmax
from fenchel.models._batch import BOS, PAD
from fenchel.nn.normalizers import read_spec

SAMPLE = 256  # rows of the last step that are kept to tell the support size when asked


class OutputLayer(Module):
    r"""From hidden states to probabilities of the next token, and their loss.

    .. math:: p = \operatorname{entmax}_\alpha(W h + b)

    ``PAD`` and ``BOS`` are no outputs and get probability 0, so that what a search finds sums to 1.
    With α > 1 the loss is :func:`fenchel.linear_entmax_loss`, which keeps no (N, V) logits; softmax
    is torch's cross-entropy.

    Args:
        width: width d of the hidden states.
        vocabulary: number of tokens V.
        spec: ``"softmax"``, ``"sparsemax"``, ``"entmax"`` (α = 1.5) or ``"entmax:1.3"``.
        weight: a ``Parameter`` (V, d) to share, such as an embedding's.
        label_smoothing: how much of each target is spread over the other tokens.

    Example:
        >>> from fenchel.models.output import OutputLayer
        >>> layer = OutputLayer(8, 10, "entmax")
        >>> p = layer.probabilities(torch.randn(3, 8)).detach()
        >>> float(p[:, :2].sum()), round(float(p.sum()), 4)
        (0.0, 3.0)
    """

    closed: Tensor

    def __init__(
        self,
        width: int,
        vocabulary: int,
        spec: str = "entmax",
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.alpha = output_alpha(spec)
        self.label_smoothing = label_smoothing
        if weight is None:
            weight = Parameter(torch.empty(vocabulary, width))
            init.uniform_(weight, -(width**-0.5), width**-0.5)
        self.weight: Tensor = weight
        self.bias = Parameter(torch.zeros(vocabulary))
        closed = torch.zeros(vocabulary, dtype=torch.bool)
        closed[[PAD, BOS]] = True
        self.register_buffer("closed", closed, persistent=False)
        self._sample: Tensor | None = None

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The mean loss of hidden states (N, d) against tokens (N,), ``PAD`` not counting."""
        rows, tokens = self.rows_that_count(hidden, target)
        weight, bias = self.weight_and_bias()
        if self.alpha == 1 and self.label_smoothing == 0:
            return F.cross_entropy(full_precision(F.linear(rows, weight, bias)), tokens)
        return linear_entmax_loss(
            rows, weight, tokens, self.alpha, bias=bias, label_smoothing=self.label_smoothing
        )

    def probabilities(self, hidden: Tensor) -> Tensor:
        """(…, V) with exact zeros, in float32 or wider."""
        scores = full_precision(F.linear(hidden, *self.weight_and_bias()))
        return softmax(scores) if self.alpha == 1 else entmax(scores, alpha=self.alpha)

    def support_size(self) -> float:
        """The mean number of tokens with probability, over a sample of the last batch's states.

        The loss only copies a few rows; the support is computed when it is asked for. It is the
        vocabulary for softmax, and NaN before the first loss.
        """
        if self._sample is None:
            return math.nan
        if self.alpha == 1:
            return float((~self.closed).sum())
        weight, bias = (x.detach() for x in self.weight_and_bias())
        sample = self._sample.to(weight)
        sizes = linear_sparse_entmax(sample, weight, self.alpha, bias=bias).sizes
        return float(sizes.double().mean())

    def rows_that_count(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Those that count: padding would be multiplied with the whole vocabulary for nothing."""
        kept = target != PAD
        rows = hidden[kept]
        self._sample = rows.detach()[:: max(1, rows.shape[0] // SAMPLE)].clone()
        return rows, target[kept]

    def weight_and_bias(self) -> tuple[Tensor, Tensor]:
        """The weight (V, d), and the bias (V,) with -inf for what is no output."""
        return self.weight, self.bias.masked_fill(self.closed, -math.inf)

    def extra_repr(self) -> str:
        vocabulary, width = self.weight.shape
        return f"{width}, {vocabulary}, {self.spec!r}"


def output_alpha(spec: str) -> float:
    """The α of an output's spec."""
    try:
        alpha = read_spec(spec).alpha
    except FenchelError:
        alpha = None
    if alpha is None or not alpha >= 1:
        raise FenchelError(
            "output: expected 'softmax', 'sparsemax', 'entmax' or 'entmax:1.3' with a number of at "
            f"least 1, but got {spec!r}."
        )
    return alpha
