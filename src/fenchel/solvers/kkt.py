r"""Optimality conditions on a support, differentiated (Niculae & Blondel 2017, Proposition 1).

Where the support S of :math:`p(\theta) = \arg\max_{p \in \triangle} \langle \theta, p \rangle -
\Omega(p)` stays the same, :math:`\theta_S - \nabla_S \Omega(p) = \lambda 1` and
:math:`1^\top p_S = 1`. Their differential is the system

.. math:: \begin{pmatrix} H_{SS} & 1 \\ 1^\top & 0 \end{pmatrix}
    \begin{pmatrix} x_S \\ \lambda \end{pmatrix} = \begin{pmatrix} v_S \\ 0 \end{pmatrix}

whose solution x = Jv is the Jacobian of the map times v, and also Newton's direction when v is the
slope. J is symmetric and positive semidefinite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.solvers.row_function import RowFunction, hessian

#: How many numbers the Hessians of one call may hold: 256 MB.
_NUMBERS = 2**25
#: Curvature below this part of the largest one is rounding.
_FLAT = 1e-11


def jacobian_product(
    omega: RowFunction, p: Tensor, support: Tensor, vector: Tensor, strongly_convex: bool
) -> tuple[Tensor, Tensor]:
    """Jv, shape (rows, n), differentiable in p and v; and whether each row's system is regular.

    Only the support is solved for. Rows of about the same size share a call; which ones they are
    must not matter to a row, so its size is rounded up to a power of two, never to a neighbour's.
    """
    rows, n = p.shape
    if torch._C._are_functorch_transforms_active():  # then no value may be read
        every = torch.arange(n, device=p.device).expand(rows, n)
        return _product(omega, p, support, vector, every, strongly_convex)
    order = support.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    exponents = support.sum(-1).clamp_min(1).double().log2().ceil().long()
    x, regular = torch.zeros_like(vector), torch.ones_like(support[:, 0])
    for exponent in exponents.unique().tolist():
        size = min(2**exponent, n)
        group = (exponents == exponent).nonzero().squeeze(-1)
        for at in group.split(max(1, _NUMBERS // (size * n))):
            part, fine = _product(
                omega, p[at], support[at], vector[at], order[at, :size], strongly_convex
            )
            x, regular = x.index_put((at,), part), regular.index_put((at,), fine)
    return x, regular


def _product(
    omega: RowFunction,
    p: Tensor,
    support: Tensor,
    vector: Tensor,
    entries: Tensor,
    strongly_convex: bool,
) -> tuple[Tensor, Tensor]:
    curvature = hessian(omega, p, entries)
    inside, v = support.gather(-1, entries), vector.gather(-1, entries)
    solve = _solve if strongly_convex else _least_norm_solve
    both = inside.unsqueeze(-1) & inside.unsqueeze(-2)
    # LAPACK may raise on a NaN: such a row is set aside, the others have their answers.
    finite = (curvature.isfinite() | ~both).all(-1).all(-1)
    curvature = torch.where(both & finite[..., None, None], curvature, 0.0)
    x, regular = solve(curvature, inside, torch.where(inside, v, 0.0))
    x = torch.zeros_like(vector).scatter(-1, entries, torch.where(inside, x, 0.0))
    return x, regular & finite


def _solve(curvature: Tensor, support: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """The solution by Cholesky's factors, which exist if Ω is strongly convex on the simplex.

    With P the projection onto the vectors that sum to 0 and b normal to them, x solves
    (PHP + bbᵀ) x = Pv; off the support there is the identity. (LU of the system itself would be
    shorter, but torch's batched LU fails on several threads: pytorch/pytorch#142815.)
    """
    matrix = curvature + torch.diag_embed((~support).to(curvature.dtype))
    # In units of 1/sqrt(H_ii) a probability of 1e-12 is solved for as exactly as one of 0.5.
    bend = matrix.detach().diagonal(dim1=-2, dim2=-1)
    unit = torch.where(bend > 0, bend, 1.0).rsqrt()
    normal = torch.where(support, unit, 0.0)
    # Relative to the largest entry first: the square of the smallest unit is not a float64.
    normal = normal / normal.amax(-1, keepdim=True).clamp_min(torch.finfo(unit.dtype).tiny)
    normal = normal / normal.square().sum(-1, keepdim=True).sqrt().clamp_min(1.0)
    matrix = unit.unsqueeze(-1) * matrix * unit.unsqueeze(-2)
    matrix = _project(_project(matrix, normal).mT, normal)
    outer = normal.unsqueeze(-1) * normal.unsqueeze(-2)
    factor, failed = torch.linalg.cholesky_ex(matrix + outer)
    right = _project((unit * vector).unsqueeze(-1), normal)
    x = unit * torch.cholesky_solve(right, factor).squeeze(-1)
    pivots = factor.detach().diagonal(dim1=-2, dim2=-1).square()
    return x, (failed == 0) & (pivots.amin(-1) > _FLAT)


def _least_norm_solve(curvature: Tensor, support: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """The solution of least norm of a system that may be singular: nothing moves where it is flat.

    With P the projection onto the vectors on S that sum to 0, that is the pseudo-inverse of PHP.
    """
    kept = support.to(vector.dtype)
    normal = kept / kept.sum(-1, keepdim=True).clamp_min(1.0).sqrt()
    inner = _project(_project(curvature, normal).mT, normal)
    inverse = torch.linalg.pinv((inner + inner.mT) / 2, rtol=_FLAT, hermitian=True)
    right = _project(vector.unsqueeze(-1), normal)
    return (inverse @ right).squeeze(-1), torch.ones_like(support[..., 0])


def _project(columns: Tensor, normal: Tensor) -> Tensor:
    """Each column without its part along a unit vector."""
    normal = normal.unsqueeze(-1)
    return columns - normal * (normal.mT @ columns)
