from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import (
    FenchelError,
    check_mask,
    check_parameter_tensor,
    check_scores,
    check_wide,
    no_bare_int,
    refuse_transforms,
)
from fenchel._dtypes import Parameter, full_precision
from fenchel.maps._entmax import ALPHA
from fenchel.maps._entmax_curve import drift, nonzero, sensitivity


class SparseRows(NamedTuple):
    """Rows of probabilities as the list of their nonzeros: what :func:`sparse_entmax` gives.

    Rows follow each other in row-major order of the batch dimensions, positions within a row
    ascend. ``nnz`` is the number of nonzeros of all rows together.

    Attributes:
        indices: ``(nnz,)`` int64, position within the row.
        values: ``(nnz,)`` probability, with gradient.
        sizes: ``(*batch,)`` int64, number of nonzeros of each row.
        threshold: ``(*batch,)`` score above which an entry of the row is in its support, without
            gradient; float32 for half scores.
        n: length of a row.

    Example:
        >>> rows = sparse_entmax(torch.tensor([[1.0, 0.0, 0.9], [0.0, 3.0, 0.0]]), alpha=2)
        >>> rows.offsets
        tensor([0, 2, 3])
        >>> rows.to_dense()
        tensor([[0.5500, 0.0000, 0.4500],
                [0.0000, 1.0000, 0.0000]])
    """

    indices: Tensor
    values: Tensor
    sizes: Tensor
    threshold: Tensor
    n: int

    @property
    def offsets(self) -> Tensor:
        """Where each row starts in ``values``, and the end: the row pointers of the CSR format."""
        ends = self.sizes.reshape(-1).cumsum(0)
        return torch.cat([ends.new_zeros(1), ends])

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The up to ``k`` largest entries of each row, largest first.

        Args:
            k: at least 1.

        Returns:
            Values and indices of shape ``(*batch, k)``; where a row has fewer nonzeros, 0 and -1.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise FenchelError(
                f"SparseRows.topk: expected `k` to be a positive int, but got {k!r}."
            )
        row = _segments(self.sizes, self.values.shape[0])
        # Two stable sorts: by value, then by row.
        order = torch.argsort(self.values, descending=True, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        place = torch.arange(order.shape[0], device=row.device) - self.offsets[row]
        best = place < k
        values = self.values.new_zeros(self.sizes.numel(), k)
        indices = self.indices.new_full((self.sizes.numel(), k), -1)
        at = (row[best], place[best])
        values = values.index_put(at, self.values[order[best]])
        indices = indices.index_put(at, self.indices[order[best]])
        shape = (*self.sizes.shape, k)
        return values.reshape(shape), indices.reshape(shape)

    def to_dense(self, dim: int = -1) -> Tensor:
        """The same rows with their zeros, differentiable in ``values``.

        Args:
            dim: axis on which to lay the entries of a row.

        Returns:
            A tensor of shape ``(*batch, n)``, the last axis moved to ``dim``.
        """
        rank = self.sizes.dim() + 1
        if isinstance(dim, bool) or not isinstance(dim, int) or not -rank <= dim < rank:
            raise FenchelError(
                f"SparseRows.to_dense: expected `dim` to be an int in [{-rank}, {rank - 1}], "
                f"but got {dim!r}."
            )
        return _scatter(self.values, self.indices, self.sizes, self.n).movedim(-1, dim)


@no_bare_int("sparse_entmax", "alpha")
def sparse_entmax(
    scores: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *, mask: Tensor | None = None
) -> SparseRows:
    r"""The nonzeros of :func:`entmax`, without the zeros.

    .. math::
        p_i = [(\alpha - 1)(\theta_i - \tau)]_+^{1/(\alpha - 1)} > 0
        \quad \text{exactly where} \quad \theta_i > \tau

    Use it when rows are long and supports short (a vocabulary, a memory): what follows then costs
    as much as the support. The native backend makes no dense result; the reference makes one for
    a moment. The gradient with respect to ``scores`` is dense, as ``scores`` is.

    ``-inf`` is a mask. A fully masked row has size 0 and threshold ``+inf``: nothing lies above
    it. A row with NaN or ``+inf`` has all its ``n`` entries, all NaN, and threshold NaN. For
    :math:`\alpha \le 1` the threshold is ``-inf`` and every entry is listed whose probability is
    not too small for the dtype; at ∞ the threshold is the maximum itself, which is listed.
    Scores within rounding of the threshold may be on either side of it. Half precision is computed
    in float32, where the support is found.

    Args:
        scores: any shape, floating dtype.
        alpha: a number in (0, ∞], or a tensor that broadcasts against ``scores`` with size 1 along
            ``dim``, with gradient. A tensor's values are not checked; one of 0 or less (or NaN)
            makes its rows NaN.
        dim: axis to normalise. The other axes, in their order, are the batch dimensions.
        mask: broadcastable boolean, True where an entry may receive mass.

    Returns:
        :class:`SparseRows`, with ``values`` in the dtype of ``scores``. Reverse-mode derivatives
        of any order in ``scores`` and in a tensor ``alpha`` flow through ``values``. The size of
        the result depends on the data: ``torch.func.vmap`` cannot batch it, and ``torch.compile``
        breaks its graph around it unless
        ``torch._dynamo.config.capture_dynamic_output_shape_ops`` is set.

    Example:
        >>> rows = sparse_entmax(torch.tensor([[-2.0, 0.0, 0.5], [3.0, 0.0, 0.0]]))
        >>> rows.indices, rows.values
        (tensor([1, 2, 0]), tensor([0.3260, 0.6740, 1.0000]))
        >>> rows.sizes, rows.threshold
        (tensor([2, 1]), tensor([-1.1419,  1.0000]))

    References:
        Peters, Niculae & Martins. Sparse Sequence-to-Sequence Models. ACL 2019.
    """
    name = "sparse_entmax"
    dim = check_scores(name, scores, dim)
    if mask is not None:
        check_mask(name, mask, scores)
        scores = scores.masked_fill(~mask, -math.inf)
    refuse_transforms(
        "sparse_entmax",
        "supports differ in size; give a batch as dimensions of `scores`, or use `fy.entmax`",
    )
    if kernels.has_sizes_only(scores):
        raise FenchelError(
            "sparse_entmax: expected `scores` with values, because the size of the result depends "
            "on them; give the FakeTensorMode a ShapeEnv, or use `fy.entmax`."
        )
    parameter = ALPHA.rows(name, alpha, scores, dim)
    rows = scores.movedim(dim, -1)
    if isinstance(parameter, Tensor):
        parameter = parameter.movedim(dim, -1)
    wide = full_precision(rows)
    tensor, number = (parameter, 0.0) if isinstance(parameter, Tensor) else (None, parameter)
    values, indices, sizes, threshold = _op(wide, tensor, number)
    threshold = _settle(threshold.detach().to(wide.dtype), values.detach(), sizes)
    return SparseRows(indices, values.to(rows.dtype), sizes, threshold, rows.shape[-1])


# The derivatives are those of :func:`entmax`, with sums over segments instead of rows. They are
# written in differentiable operations of the values, which serves every higher order.


@torch.library.custom_op(
    "fenchel::sparse_entmax",
    mutates_args=(),
    schema="(Tensor scores, Tensor? alpha, float number) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _op(
    scores: Tensor, alpha: Tensor | None, number: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values, indices, sizes, threshold along the last axis, for a tensor alpha or a number."""
    _check(scores, alpha)
    parameter = number if alpha is None else alpha
    indices, values, sizes, threshold = kernels.run_sparse("entmax", scores, parameter)
    return values, indices, sizes, threshold


def _check(scores: Tensor, alpha: Tensor | None) -> None:
    dim = check_scores("sparse_entmax", scores, -1)
    check_wide("sparse_entmax", scores=scores)
    if alpha is not None:
        check_parameter_tensor("sparse_entmax", "alpha", alpha, scores, dim)


@_op.register_fake
def _shapes(
    scores: Tensor, alpha: Tensor | None, number: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check(scores, alpha)
    nnz = torch.library.get_ctx().new_dynamic_size()
    sizes = scores.new_empty(scores.shape[:-1], dtype=torch.int64)
    indices = scores.new_empty(nnz, dtype=torch.int64)
    threshold = scores.new_empty(scores.shape[:-1], dtype=_precise(scores))
    return scores.new_empty(nnz), indices, sizes, threshold


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scores, alpha, ctx.number = inputs
    values, indices, sizes, _ = output
    ctx.n = scores.shape[-1]
    ctx.save_for_backward(values, indices, sizes, *(() if alpha is None else (alpha,)))


def _backward(
    ctx: Any, grad: Tensor, _indices: Any, _sizes: Any, _threshold: Any
) -> tuple[Tensor | None, Tensor | None, None]:
    values, indices, sizes, *tensors = ctx.saved_tensors
    alpha = tensors[0] if tensors else ctx.number
    segment = _segments(sizes, values.shape[0])
    # A segment is summed one by one: float64 keeps what pairwise sums keep for the dense map.
    p, vector = values.to(_precise(values)), grad.to(_precise(values))
    s, exponent = _slopes(p, alpha, sizes, segment)
    centred = _centre(vector, s, sizes, segment, exponent)
    grad_scores = grad_alpha = None
    if ctx.needs_input_grad[0]:
        grad_scores = _scatter((s * centred).to(values.dtype), indices, sizes, ctx.n)
    if isinstance(exponent, Tensor) and ctx.needs_input_grad[1]:
        moved = -_segment_sum(drift(p, exponent) * centred, sizes, segment)
        grad_alpha = moved.reshape(*sizes.shape, 1).sum_to_size(alpha.shape).to(alpha)
    return grad_scores, grad_alpha, None


_op.register_autograd(_backward, setup_context=_save)


def _slopes(
    p: Tensor, alpha: Parameter, sizes: Tensor, segment: Tensor
) -> tuple[Tensor, Parameter]:
    """s = p^(2 - alpha), which is 0 at alpha = inf, and alpha as a number or one an entry."""
    if not isinstance(alpha, Tensor):
        return sensitivity(p, alpha), alpha
    each = alpha.expand(*sizes.shape, 1).reshape(-1).to(p)[segment]
    return sensitivity(p, each), each


def _centre(vector: Tensor, s: Tensor, sizes: Tensor, segment: Tensor, alpha: Parameter) -> Tensor:
    """``vector`` minus its mean in each segment with weights ``s``."""
    if isinstance(alpha, Tensor) or alpha > 2:
        # As for the dense map: relative to the entry with the largest s nothing large cancels.
        vector = vector - vector[_largest(s.detach(), sizes, segment)]
    total = nonzero(_segment_sum(s, sizes, segment))
    return vector - (_segment_sum(s * vector, sizes, segment) / total)[segment]


_NOWHERE = 2**62


def _precise(x: Tensor) -> torch.dtype:
    """float64, except on devices that have none."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def _segments(sizes: Tensor, total: int) -> Tensor:
    """The number of the row of every value."""
    flat = sizes.reshape(-1)
    rows = torch.arange(flat.shape[0], device=sizes.device)
    return rows.repeat_interleave(flat, output_size=total)


def _segment_sum(values: Tensor, sizes: Tensor, segment: Tensor) -> Tensor:
    return values.new_zeros(sizes.numel()).index_add(0, segment, values)


def _largest(s: Tensor, sizes: Tensor, segment: Tensor) -> Tensor:
    """For every value, the place of the first largest ``s`` of its row."""
    peak = s.new_zeros(sizes.numel()).scatter_reduce(0, segment, s, "amax")
    place = torch.arange(s.shape[0], device=s.device)
    place = torch.where((s == peak[segment]) | s.isnan(), place, _NOWHERE)
    first = sizes.new_full((sizes.numel(),), _NOWHERE).scatter_reduce(0, segment, place, "amin")
    return first[segment]


def _scatter(values: Tensor, indices: Tensor, sizes: Tensor, n: int) -> Tensor:
    """Values at their places in zeros of shape (*batch, n)."""
    places = _segments(sizes, values.shape[0]) * n + indices
    return values.new_zeros(sizes.numel() * n).scatter(0, places, values).reshape(*sizes.shape, n)


def _settle(threshold: Tensor, values: Tensor, sizes: Tensor) -> Tensor:
    """+inf for a row without support and NaN for a NaN row, whatever alpha is."""
    total = _segment_sum(values, sizes, _segments(sizes, values.shape[0])).reshape(sizes.shape)
    threshold = torch.where(sizes == 0, math.inf, threshold)
    return torch.where(total.isnan(), math.nan, threshold)
