from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from fenchel.maps.declaration import MAPS
from fenchel.models._normalizers import normalizer
from fenchel.nn import MultiheadAttention
from fenchel.nn.normalizers import read_spec


class HeadAttention(MultiheadAttention):
    """:class:`fenchel.nn.MultiheadAttention` by spec, with keys and values that can be kept.

    Args:
        width: width of the model.
        heads: number of heads; divides the width.
        spec: the normalizer, as in :func:`fenchel.models.normalizer`; with ``"entmax:learned"``
            each head learns its own α.
        dropout: share of the weights that are dropped in training.
    """

    def __init__(self, width: int, heads: int, spec: str, dropout: float = 0.0) -> None:
        read = read_spec(spec) if spec.partition(":")[0] in MAPS else None
        alpha = None if read is None else read.alpha
        learned = read is not None and read.learned
        other = None if learned or alpha is not None else normalizer(spec)
        super().__init__(
            width,
            heads,
            dropout,
            batch_first=True,
            alpha=1.5 if alpha is None else alpha,
            learn_alpha=learned,
            normalizer=other,
        )

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the heads, each (B, heads, S, width / heads), of x (B, S, width)."""
        width = self.embed_dim
        k, v = F.linear(x, self.in_proj_weight[width:], self.in_proj_bias[width:]).chunk(2, -1)
        return self._heads(k), self._heads(v)

    def attend(
        self,
        x: Tensor,
        keys: tuple[Tensor, Tensor],
        mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of x (B, L, width) to what :meth:`keys` gave.

        Args:
            x: the queries before their projection.
            keys: keys and values of the heads.
            mask: broadcastable to (B, heads, L, S), True where a query may look.
            causal: whether query i sees keys 0 to i only.
            need_weights: whether to return the weights.

        Returns:
            The output (B, L, width), and the weights (B, heads, L, S) or None.
        """
        width = self.embed_dim
        q = self._heads(F.linear(x, self.in_proj_weight[:width], self.in_proj_bias[:width]))
        out, weights = self.attend_heads(q, *keys, mask, causal, need_weights)
        return self.out_proj(out.transpose(1, 2).flatten(2)), weights

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)
