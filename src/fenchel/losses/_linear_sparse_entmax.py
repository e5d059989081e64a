from __future__ import annotations

import torch
from torch import Tensor

from fenchel._checks import check_alphas
from fenchel.losses._output_layer import check_layer, logits_of
from fenchel.maps import SparseRows, sparse_entmax


def linear_sparse_entmax(
    hidden: Tensor, weight: Tensor, alpha: float | Tensor = 1.5, *, bias: Tensor | None = None
) -> SparseRows:
    r"""What an output layer predicts: the words with probability, without the dense tensor.

    It is ``fy.sparse_entmax(F.linear(hidden, weight, bias), alpha)``, a chunk of rows at a time and
    without gradient: the side of :func:`fenchel.linear_entmax_loss` that decoding needs.

    Args:
        hidden: shape (…, d), floating dtype.
        weight: shape (V, d), as in ``torch.nn.Linear``.
        alpha: a number in (0, ∞], or a tensor that broadcasts to (…, 1).
        bias: shape (V), or None; ``-inf`` masks a class.

    Returns:
        Rows of shape (…) over V classes; :meth:`fenchel.SparseRows.topk` gives the best of each.

    Example:
        >>> hidden = torch.tensor([[1.0, 0.0], [0.4, 0.3]])
        >>> weight = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 2.0]])
        >>> rows = fy.linear_sparse_entmax(hidden, weight)
        >>> rows.sizes
        tensor([1, 3])
        >>> rows.topk(2)
        (tensor([[1.0000, 0.0000],
                [0.5101, 0.3183]]), tensor([[ 0, -1],
                [ 0,  1]]))
    """
    name = "linear_sparse_entmax"
    rows = check_layer(name, hidden, weight, bias)
    scores = hidden.detach()[..., :1].expand(*hidden.shape[:-1], weight.shape[0])  # no memory
    meaning = "(2 is sparsemax)"
    parameter = check_alphas(name, alpha, scores, scores.dim() - 1, meaning)
    if isinstance(parameter, Tensor) and parameter.numel() > 1:
        parameter = parameter.expand(*scores.shape[:-1], 1).reshape(-1, 1)
    found = []
    with torch.no_grad():
        for part, logits in logits_of(rows, weight, bias):
            many = isinstance(parameter, Tensor) and parameter.numel() > 1
            of_part = parameter[part] if many else parameter  # type: ignore[index]
            found.append(sparse_entmax(logits, of_part))
    if not found:
        found = [sparse_entmax(scores.reshape(0, weight.shape[0]), 1.5)]
    lead = hidden.shape[:-1]
    return SparseRows(
        torch.cat([part.indices for part in found]),
        torch.cat([part.values for part in found]).to(hidden.dtype),
        torch.cat([part.sizes for part in found]).reshape(lead),
        torch.cat([part.threshold for part in found]).reshape(lead),
        weight.shape[0],
    )
