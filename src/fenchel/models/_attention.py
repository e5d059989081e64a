"""Attention of models by spec: of one head over all states, and of several heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter, init
from torch.nn import functional as F

from fenchel.maps.declaration import MAPS
from fenchel.models._normalizers import normalizer
from fenchel.nn import MultiheadAttention
from fenchel.nn.normalizers import read_spec


class Keys(NamedTuple):
    """What attention needs of the encoded sources, computed once for all steps.

    Attributes:
        scores: (B, S, d) what a query is compared with.
        values: (B, S, d) the sources' share of the attentional output.
        mask: (B, S), True where a source has a token, or None.
    """

    scores: Tensor
    values: Tensor
    mask: Tensor | None


class GlobalAttention(Module):
    r"""Attention of a decoder state to all source positions, and the output that it gives.

    .. math::
        o = \tanh(W_s s + W_c \textstyle\sum_j \pi_j h_j + b), \qquad
        \pi = \operatorname{normalizer}(z), \qquad
        z_j = \begin{cases}
            s^\top W h_j & \text{general} \\ s^\top h_j & \text{dot} \\
            v^\top \tanh(W_q s + W h_j + b_q) & \text{mlp}
        \end{cases}

    Products with the sources, :math:`W h_j` and :math:`W_c h_j`, are taken once, not at each step.

    Args:
        width: width d of states and sources.
        score: ``"general"``, ``"dot"`` or ``"mlp"``.
        spec: the normalizer, as in :func:`fenchel.models.normalizer`.

    References:
        Luong, Pham & Manning. Effective Approaches to Attention-based Neural Machine Translation.
        EMNLP 2015.
    """

    def __init__(self, width: int, score: str = "general", spec: str = "entmax") -> None:
        super().__init__()
        self.score = score
        self.normalizer = normalizer(spec)
        self.of_source = None if score == "dot" else Linear(width, width, bias=False)
        self.of_query = Linear(width, width) if score == "mlp" else None
        if score == "mlp":
            self.combine: Parameter | None = Parameter(torch.empty(width))
            init.uniform_(self.combine, -(width**-0.5), width**-0.5)
        else:
            self.register_parameter("combine", None)
        self.of_context = Linear(width, width, bias=False)
        self.of_state = Linear(width, width)

    def prepare(self, memory: Tensor, mask: Tensor | None) -> Keys:
        """Project encoder states (B, S, d)."""
        scores = memory if self.of_source is None else self.of_source(memory)
        return Keys(scores, self.of_context(memory), mask)

    def forward(self, states: Tensor, keys: Keys) -> tuple[Tensor, Tensor]:
        """The attentional outputs (B, T, d) of decoder states (B, T, d), and weights (B, T, S)."""
        if self.of_query is None or self.combine is None:
            scores = states @ keys.scores.transpose(1, 2)
        else:
            query = self.of_query(states)
            scores = torch.tanh(query[:, :, None] + keys.scores[:, None]) @ self.combine
        mask = None if keys.mask is None else keys.mask[:, None]
        weights = self.normalizer(scores, mask)
        return torch.tanh(self.of_state(states) + weights @ keys.values), weights

    def extra_repr(self) -> str:
        return f"score={self.score!r}"


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
