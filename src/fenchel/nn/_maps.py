"""The maps as modules: each keeps the arguments of its function.

What a module checks, says and prints follows from the declaration of its map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Module

from fenchel._checks import check_dim, no_bare_int
from fenchel.maps.declaration import GAMMA, MAPS, Map
from fenchel.nn._alpha import WithAlpha
from fenchel.nn._arguments import written

__all__ = [
    "Budget",
    "Entmax",
    "Entmax15",
    "Fusedmax",
    "LogisticBudget",
    "MapModule",
    "Normmax",
    "Oscarmax",
    "Renyimax",
    "Softmax",
    "Sparsemax",
    "SqPnormMax",
]


class MapModule(Module):
    """A map with its arguments kept. The parameter is an attribute with the keyword of the map.

    Args:
        value: the parameter of the map, a number; None if it has none or a subclass provides it.
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.
    """

    #: The declaration of the map.
    map: ClassVar[Map]

    def __init__(self, value: Any = None, dim: int = -1, gamma: float = 1.0) -> None:
        super().__init__()
        name = f"nn.{type(self).__name__}"
        argument = self.map.argument
        if argument is not None and value is not None:
            setattr(self, argument.keyword, argument.number(name, value))
        self.dim = check_dim(name, dim)
        self.gamma = GAMMA.number(name, gamma)

    @property
    def _value(self) -> Any:
        argument = self.map.argument
        return None if argument is None else getattr(self, argument.keyword)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return self.map.run(scores, self._value, self.dim, mask, self.gamma)

    def extra_repr(self) -> str:
        argument = self.map.argument
        first = "" if argument is None else f"{argument.keyword}={written(self._value)}, "
        return f"{first}dim={self.dim}{self._gamma_repr()}"

    def _gamma_repr(self) -> str:
        return "" if self.gamma == 1 else f", gamma={written(self.gamma)}"


class _WithLengths(MapModule):
    """For a map in which it matters where a row ends."""

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Probabilities of the shape of ``scores``.

        Args:
            scores: any shape, floating dtype.
            mask: broadcastable boolean, True where an entry may receive mass.
            lengths: how many entries of each row count.
        """
        return self.map.run(scores, self._value, self.dim, mask, self.gamma, lengths)


class Softmax(MapModule):
    """:func:`fenchel.softmax` as a module: the dense member of the family.

    It differs from :class:`torch.nn.Softmax` in that a fully masked row gives zeros.

    Args:
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.Softmax()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0486, 0.3592, 0.5922])
    """

    map = MAPS["softmax"]

    def __init__(self, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(None, dim, gamma)


class Sparsemax(MapModule):
    """:func:`fenchel.sparsemax` as a module: projection of scores onto the probability simplex.

    Args:
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.Sparsemax()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.2500, 0.7500])

    References:
        Martins & Astudillo. From Softmax to Sparsemax. ICML 2016.
    """

    map = MAPS["sparsemax"]

    def __init__(self, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(None, dim, gamma)


class Entmax15(MapModule):
    r""":func:`fenchel.entmax15` as a module: entmax at :math:`\alpha = 1.5`.

    Args:
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.Entmax15()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3260, 0.6740])

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """

    map = MAPS["entmax15"]

    def __init__(self, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(None, dim, gamma)


class Entmax(WithAlpha, MapModule):
    r""":func:`fenchel.entmax` as a module, with an :math:`\alpha` that is fixed or learned.

    A learned :math:`\alpha` stays between two bounds,

    .. math:: \alpha = \mathit{low} + (\mathit{high} - \mathit{low}) \, \sigma(a)

    where :math:`a` is the module's one parameter, ``alpha_logit``. By default that spans softmax
    to sparsemax. A fixed :math:`\alpha` is no parameter and not in the ``state_dict``.

    Args:
        alpha: a number in (0, ∞]; with ``learnable``, where learning starts, strictly between
            ``low`` and ``high``.
        learnable: whether alpha is learned.
        shape: shape of a learned alpha, broadcast against the scores with size 1 along ``dim``:
            ``(8, 1, 1)`` is one for each of 8 heads in scores of shape (batch, 8, queries, keys).
        dim: axis to normalise.
        low: lower bound of a learned alpha, above 0. With ``learnable=False`` the shape and
            the bounds are not used.
        high: upper bound of a learned alpha, finite.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> heads = fy.nn.Entmax(alpha=1.25, learnable=True, shape=(2, 1, 1))
        >>> heads.alpha.flatten()
        tensor([1.2500, 1.2500], grad_fn=<...>)
        >>> heads(torch.zeros(5, 2, 3, 4)).shape
        torch.Size([5, 2, 3, 4])

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """

    map = MAPS["entmax"]

    @no_bare_int("nn.Entmax", "alpha")
    def __init__(
        self,
        alpha: float = 1.5,
        learnable: bool = False,
        shape: Sequence[int] = (),
        *,
        dim: int = -1,
        low: float = 1.0,
        high: float = 2.0,
        gamma: float = 1.0,
    ) -> None:
        super().__init__(alpha, learnable, shape, low, high)
        self.dim = check_dim("nn.Entmax", dim)
        self.gamma = GAMMA.number("nn.Entmax", gamma)

    def extra_repr(self) -> str:
        alpha, learned = self._alpha_repr()
        return f"{alpha}, dim={self.dim}{learned}{self._gamma_repr()}"


class Normmax(MapModule):
    r""":func:`fenchel.normmax` as a module: the sparse map of the norm entropy.

    Args:
        q: exponent of the norm, a number in [1, ∞].
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.Normmax()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.3110, 0.6890])

    References:
        Blondel, Martins & Niculae. Learning with Fenchel-Young Losses. JMLR 2020.
    """

    map = MAPS["normmax"]

    @no_bare_int("nn.Normmax", "q")
    def __init__(self, q: float = 2.0, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(q, dim, gamma)


class SqPnormMax(MapModule):
    r""":func:`fenchel.sq_pnorm_max` as a module: the sparse map of the squared norm.

    Args:
        q: exponent of the norm, a number in [1, ∞].
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.SqPnormMax(q=1.5)(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.1526, 0.8474])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    map = MAPS["sq_pnorm_max"]

    @no_bare_int("nn.SqPnormMax", "q")
    def __init__(self, q: float = 1.5, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(q, dim, gamma)


class Renyimax(MapModule):
    r""":func:`fenchel.renyimax` as a module: dense, with heavier tails than softmax.

    Args:
        beta: order of the entropy, a number in (0, 1].
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.Renyimax()(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0391, 0.2588, 0.7021])

    References:
        Blondel, Martins & Niculae. Learning Classifiers with Fenchel-Young Losses: Generalized
        Entropies, Margins, and Algorithms. AISTATS 2019.
    """

    map = MAPS["renyimax"]

    @no_bare_int("nn.Renyimax", "beta")
    def __init__(self, beta: float = 0.5, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(beta, dim, gamma)


class Fusedmax(_WithLengths):
    r""":func:`fenchel.fusedmax` as a module: sparse, and equal over stretches of neighbours.

    Args:
        lam: weight of the total variation, a number of at least 0.
        dim: axis to normalise.
        gamma: weight of the whole regularizer, a finite number above 0.

    Example:
        >>> fy.nn.Fusedmax(lam=0.1)(torch.tensor([0.2, 0.1, -0.5]))
        tensor([0.5000, 0.5000, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    map = MAPS["fusedmax"]

    @no_bare_int("nn.Fusedmax", "lam")
    def __init__(self, lam: float = 0.1, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(lam, dim, gamma)


class Oscarmax(_WithLengths):
    r""":func:`fenchel.oscarmax` as a module: sparse, and equal over groups wherever they stand.

    Args:
        lam: weight of the pairwise maxima, a number of at least 0.
        dim: axis to normalise.
        gamma: weight of the whole regularizer, a finite number above 0.

    Example:
        >>> fy.nn.Oscarmax(lam=0.1)(torch.tensor([0.2, 0.1, -0.5]))
        tensor([0.5000, 0.5000, 0.0000])

    References:
        Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
        NeurIPS 2017.
    """

    map = MAPS["oscarmax"]

    @no_bare_int("nn.Oscarmax", "lam")
    def __init__(self, lam: float = 0.01, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(lam, dim, gamma)


class Budget(MapModule):
    """:func:`fenchel.budget` as a module: sparse choice of ``k`` out of ``n``.

    Args:
        k: how much to distribute, a number of at least 0 (it need not be whole); at most the
            number of entries along ``dim``, which shows when the scores come.
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.Budget(k=2)(torch.tensor([1.0, 0.2, -0.1, -3.0]))
        tensor([1.0000, 0.6500, 0.3500, 0.0000])

    References:
        Martins & Kreutzer. Learning What's Easy: Fully Differentiable Neural Easy-First Taggers.
        EMNLP 2017 (constrained sparsemax).
    """

    map = MAPS["budget"]

    def __init__(self, k: float = 2.0, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(k, dim, gamma)


class LogisticBudget(MapModule):
    """:func:`fenchel.logistic_budget` as a module: dense choice of ``k`` out of ``n``.

    Args:
        k: how much to distribute, a number of at least 0 (it need not be whole); at most the
            number of entries along ``dim``, which shows when the scores come.
        dim: axis to normalise.
        gamma: a temperature, a finite number above 0.

    Example:
        >>> fy.nn.LogisticBudget(k=2)(torch.tensor([1.0, 0.2, -0.1, -3.0]))
        tensor([0.7808, 0.6155, 0.5425, 0.0612])

    References:
        Amos, Koltun & Kolter. The Limited Multi-Label Projection Layer. 2019.
    """

    map = MAPS["logistic_budget"]

    def __init__(self, k: float = 2.0, dim: int = -1, *, gamma: float = 1.0) -> None:
        super().__init__(k, dim, gamma)
