from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fenchel._checks import check_dim, no_bare_int
from fenchel.maps import entmax
from fenchel.nn._alpha import WithAlpha


class Entmax(WithAlpha):
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

    Example:
        >>> from fenchel.nn import Entmax
        >>> heads = Entmax(alpha=1.25, learnable=True, shape=(2, 1, 1))
        >>> heads.alpha.flatten()
        tensor([1.2500, 1.2500], grad_fn=<...>)
        >>> heads(torch.zeros(5, 2, 3, 4)).shape
        torch.Size([5, 2, 3, 4])

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """

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
    ) -> None:
        super().__init__(alpha, learnable, shape, low, high)
        self.dim = check_dim("nn.Entmax", dim)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of the shape of ``scores``; ``mask`` is True where mass may go."""
        return entmax(scores, alpha=self.alpha, dim=self.dim, mask=mask)

    def extra_repr(self) -> str:
        alpha, learned = self._alpha_repr()
        return f"{alpha}, dim={self.dim}{learned}"
