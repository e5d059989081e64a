from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import check_number, check_scores, no_bare_int
from fenchel.kernels import pooled
from fenchel.maps._sparsemax import sparsemax


@no_bare_int("oscarmax_approx", "lam")
def oscarmax_approx(
    scores: Tensor, lam: float = 0.01, dim: int = -1, *, gamma: float = 1.0
) -> Tensor:
    r"""The published approximation of :func:`oscarmax`, for comparison only.

    The prox of OSCAR on all of :math:`\mathbb{R}^n`, with absolute values and clipping at 0, and
    then the projection onto the simplex. It is not the maximiser: it misses it on most inputs, and
    it is not even invariant to a shift of the scores. Use :func:`oscarmax`.

    Args:
        scores: any shape, floating dtype, finite.
        lam: weight of the pairwise maxima, at least 0.
        dim: axis to normalise.
        gamma: weight of the whole regularizer, above 0.

    Example:
        >>> scores = torch.tensor([0.2, 0.1, -0.5])
        >>> oscarmax_approx(scores, lam=0.1), oscarmax_approx(scores - 1, lam=0.1)
        (tensor([0.4667, 0.4667, 0.0667]), tensor([0.5000, 0.5000, 0.0000]))

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017, with its erratum.
    """
    dim = check_scores("oscarmax_approx", scores, dim)
    lam = check_number("oscarmax_approx", "lam", lam, 0.0, "(0 is sparsemax)")
    gamma = check_number("oscarmax_approx", "gamma", gamma, 0.0, "(and above it)")
    x = scores.double().movedim(dim, -1) / gamma
    n = x.shape[-1]
    ranked, order = x.abs().sort(dim=-1, descending=True, stable=True)
    # Isotonic regression is what oscarmax's groups come from; their levels are means.
    penalty = torch.arange(n - 1, -1, -1, device=x.device, dtype=x.dtype).expand_as(ranked)
    linked = torch.ones_like(ranked[..., 1:], dtype=torch.bool)
    index = pooled(ranked.detach(), penalty, lam, linked)
    penalised = ranked - lam * penalty
    zeros = torch.zeros_like(ranked)
    sizes = zeros.scatter_add(-1, index, torch.ones_like(ranked)).clamp(min=1)
    level = (zeros.scatter_add(-1, index, penalised) / sizes).gather(-1, index)
    shrunk = zeros.scatter(-1, order, level.clamp(min=0)) * x.sign()
    return sparsemax(shrunk).movedim(-1, dim).to(scores.dtype)
