"""Sparse categorical distributions for ``torch.distributions``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, constraints
from torch.distributions.kl import register_kl

from fenchel._checks import FenchelError, check_scores
from fenchel.maps import entmax


class SparseCategorical(Distribution):
    r"""A categorical distribution some of whose outcomes have probability exactly 0.

    .. math::
        P(i) = p_i, \qquad p = \operatorname{entmax}_\alpha(\theta)
        \quad \text{or} \quad p = w / \textstyle\sum_j w_j

    It has the shapes and methods of :class:`torch.distributions.Categorical`, over the last axis,
    and is honest where that one clamps: ``log_prob`` of an outcome without mass is ``-inf``,
    sampling never draws one, and ``0 log 0 = 0`` in ``entropy`` and in KL divergences, which are
    registered with :func:`torch.distributions.kl_divergence` for two of these and for one of these
    with a ``Categorical`` on either side. They are ``+inf`` when p has mass where q has none.

    No gradient is NaN: an outcome without mass passes no gradient on, and neither does the
    infinite part of a divergence. So ``log_prob`` teaches nothing about a gold outcome that has
    lost its mass; to train a model that predicts such a distribution, use a loss made for it.

    Args:
        probs: ``(*batch, n)`` non-negative weights, normalised here to sum to 1.
        scores: ``(*batch, n)`` scores, mapped by :func:`entmax`; ``-inf`` is a mask. Exactly one of
            ``probs`` and ``scores`` is given.
        alpha: of the entmax that maps ``scores``: a number in (0, ∞] or a tensor that broadcasts
            against ``scores`` with size 1 along the last axis. Not used with ``probs``.
        validate_args: whether to check values: here that they give a distribution, in methods that
            outcomes lie in ``support``. None is the default of ``torch.distributions``, which is
            True until something is compiled with ``torch.compile``. Left unchecked, a row of
            zeros, a NaN or a fully masked row gives NaN.

    Example:
        >>> d = SparseCategorical(scores=torch.tensor([-2.0, 0.0, 0.5]))
        >>> d.probs
        tensor([0.0000, 0.3260, 0.6740])
        >>> d.log_prob(torch.tensor([0, 2]))
        tensor([   -inf, -0.3945])
        >>> d.entropy(), d.support_size
        (tensor(0.6313), tensor(2))

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """

    arg_constraints = {"probs": constraints.simplex}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        scores: Tensor | None = None,
        alpha: float | Tensor = 1.5,
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (scores is None):
            given = "neither" if probs is None else "both"
            raise FenchelError(
                f"SparseCategorical: expected exactly one of `probs` and `scores`, but got {given}."
            )
        if validate_args is None:
            validate_args = Distribution._validate_args
        if scores is not None:
            check_scores("SparseCategorical", scores, -1)
            self.probs = entmax(scores, alpha=alpha, dim=-1)
        elif probs is not None:
            _check_weights(probs, validate_args)
            self.probs = probs / probs.sum(-1, keepdim=True)
        # torch's own check allows the sum an error that half precision and long rows exceed.
        super().__init__(self.probs.shape[:-1], validate_args=False)
        self._validate_args = validate_args
        if validate_args:
            _check_rows("probs" if scores is None else "scores", self.probs)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> SparseCategorical:
        """The same distribution with its batch dimensions expanded to ``batch_shape``."""
        new = self._get_checked_instance(SparseCategorical, _instance)
        shape = torch.Size(batch_shape)
        new.probs = self.probs.expand(shape + self.probs.shape[-1:])
        super(SparseCategorical, new).__init__(shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The integers that may be asked about; those with mass may be fewer."""
        return constraints.integer_interval(0, self.probs.shape[-1] - 1)

    @property
    def param_shape(self) -> torch.Size:
        """The shape of ``probs``."""
        return self.probs.shape

    @property
    def support_size(self) -> Tensor:
        """How many outcomes have mass."""
        return (self.probs > 0).sum(-1)

    @property
    def mean(self) -> Tensor:
        """NaN: outcomes are names, not numbers."""
        return torch.full_like(self.probs[..., 0], math.nan, requires_grad=False)

    @property
    def variance(self) -> Tensor:
        """NaN: outcomes are names, not numbers."""
        return self.mean

    @property
    def mode(self) -> Tensor:
        """The most likely outcome."""
        return self.probs.argmax(-1)

    def sample(
        self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw outcomes, always ones with mass.

        Args:
            sample_shape: how many, as dimensions in front of ``batch_shape``.
            generator: where the randomness comes from; torch's global one if None.
        """
        sample_shape = torch.Size(sample_shape)
        shape = sample_shape + self._batch_shape
        if shape.numel() == 0:
            return torch.empty(shape, dtype=torch.int64, device=self.probs.device)
        with torch.no_grad():
            rows = self.probs.reshape(-1, self.probs.shape[-1])
            drawn = torch.multinomial(rows, sample_shape.numel(), True, generator=generator)
            # A uniform number that is exactly 0 lands on the first outcome, with mass or not.
            empty = rows.gather(-1, drawn) == 0
            drawn = torch.where(empty, rows.argmax(-1, keepdim=True), drawn)
        return drawn.T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """log P(value): ``-inf``, without gradient, for an outcome without mass."""
        if self._validate_args:
            self._validate_sample(value)
        shape = torch.broadcast_shapes(value.shape, self._batch_shape)
        place = value.long().expand(shape).unsqueeze(-1)
        return _log(self.probs.expand(*shape, -1).gather(-1, place).squeeze(-1))

    def entropy(self) -> Tensor:
        """Shannon's, in nats: outcomes without mass count 0 and get no gradient."""
        return -_expectation(self.probs, _log(self.probs))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All n outcomes, with mass or not (which have it differs from row to row).

        Args:
            expand: whether to repeat them over the batch dimensions; otherwise those have size 1.
        """
        values = torch.arange(self.probs.shape[-1], device=self.probs.device)
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


@register_kl(SparseCategorical, SparseCategorical)
@register_kl(SparseCategorical, Categorical)
@register_kl(Categorical, SparseCategorical)
def _kl(p: Distribution, q: Distribution) -> Tensor:
    """Sum of p (log p - log q) where p has mass; +inf when q has none there."""
    p_probs, q_probs = _probs(p), _probs(q)
    if p_probs.shape[-1] != q_probs.shape[-1]:
        raise FenchelError(
            "kl_divergence: expected distributions over equally many outcomes, but got "
            f"{p_probs.shape[-1]} and {q_probs.shape[-1]}."
        )
    log_q = _log_probs(q)
    impossible = ((p_probs > 0) & (log_q == -math.inf)).any(-1)
    # The infinite part is added as a constant, so that the rest keeps a finite gradient.
    finite = _expectation(p_probs, _log_probs(p) - torch.where(log_q == -math.inf, 0.0, log_q))
    return finite + torch.where(impossible, math.inf, 0.0)


def _probs(d: Distribution) -> Tensor:
    assert isinstance(d, SparseCategorical | Categorical)
    return d.probs


def _log_probs(d: Distribution) -> Tensor:
    """log p with honest -inf. A ``Categorical`` made from probs clamps its own logits."""
    if isinstance(d, Categorical) and d._param is d.__dict__.get("logits"):
        return d.logits
    return _log(_probs(d))


def _log(p: Tensor) -> Tensor:
    """log p; -inf without gradient at 0.

    Neither have numbers below the smallest normal one a gradient: 1/p would overflow.
    """
    normal = p >= torch.finfo(p.dtype).tiny
    with torch.no_grad():
        small = p.log()
    return torch.where(normal, torch.where(normal, p, 1.0).log(), small)


def _expectation(p: Tensor, values: Tensor) -> Tensor:
    """Sum of p times values where p > 0: what is infinite elsewhere does not count."""
    inside = p > 0
    terms = torch.where(inside, p, 0.0) * torch.where(inside, values, 0.0)
    return torch.where(p.isnan(), p, terms).sum(-1)


def _check_weights(probs: Any, values: bool) -> None:
    """Weights are non-negative numbers along a last axis that has entries."""
    if not isinstance(probs, Tensor) or not probs.is_floating_point() or probs.dim() == 0:
        got = (
            f"{probs.dim()}-d {probs.dtype}" if isinstance(probs, Tensor) else type(probs).__name__
        )
        raise FenchelError(
            "SparseCategorical: expected `probs` to be a floating tensor with at least one "
            f"dimension, but got {got}."
        )
    if probs.shape[-1] == 0:
        raise FenchelError(
            "SparseCategorical: expected at least one outcome, but `probs` of shape "
            f"{tuple(probs.shape)} has none."
        )
    if values and not bool((probs >= 0).all()):
        raise FenchelError("SparseCategorical: expected `probs` >= 0, but some are not.")


def _check_rows(label: str, probs: Tensor) -> None:
    """This reads values, as torch.distributions does everywhere unless validate_args is False."""
    if not bool((probs.sum(-1) > 0.5).all()):
        raise FenchelError(
            f"SparseCategorical: expected every row of `{label}` to give a distribution, but "
            "some are NaN, infinite or without any mass."
        )
