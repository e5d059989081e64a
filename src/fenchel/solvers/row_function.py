"""A function that a user wrote, checked, and made one of many rows; its derivatives.

Gradients and Hessians are taken up to the boundary of the simplex. A function may have an infinite
slope or curvature where a probability is 0 (every entropy whose map is sparser than softmax has an
infinite second or third derivative there), and torch makes NaN of ``0 * inf``. Here every function
is seen at ``max(p, FLOOR)``: what multiplies a zero is then large but finite, and no value that
float64 can hold is changed by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError


def check_callable(name: str, function: Any) -> None:
    """Check that a function can be called."""
    if not callable(function):
        raise FenchelError(
            f"{name}: expected a function of probabilities in torch ops, such as "
            f"`lambda p: (p * p).sum(-1) / 2`, but got {type(function).__name__}."
        )


def row_function(
    name: str, function: Callable[[Tensor], Tensor], n: int, device: torch.device
) -> RowFunction:
    """``function`` as one of float64 rows of ``n`` entries: (rows, n) to (rows).

    It is tried on two rows, together and apart. If it takes them together it is returned as it is;
    if only apart, under ``torch.func.vmap``.
    """
    check_callable(name, function)
    with torch.inference_mode(False), torch.enable_grad():
        rows = torch.stack([torch.arange(1.0, n + 1), torch.ones(n)]).to(device, torch.float64)
        rows = rows / rows.sum(-1, keepdim=True)
        transformed = torch._C._are_functorch_transforms_active()
        if not transformed:  # torch.func forbids it
            rows.requires_grad_()
        together, complaint = _try(name, function, rows, (2,))
        apart = [x for row in rows if (x := _try(name, function, row, ())[0]) is not None]
        single = torch.stack(apart) if len(apart) == len(rows) else None
        if together is None or (single is not None and not _agree(together, single)):
            if single is None:
                raise complaint
            together, complaint = _try(name, torch.func.vmap(function), rows, (2,))
            if together is None:
                raise complaint
            function = torch.func.vmap(function)
        _check_values(name, together, not transformed)
    return function


def _try(
    name: str, function: RowFunction, p: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor | None, FenchelError]:
    """The value, or None and what is wrong with it."""
    asked = f"a float64 tensor of shape {tuple(p.shape)}"
    try:
        value: Any = function(p)
    except Exception as error:
        complaint = FenchelError(
            f"{name}: the function must take {asked}, but it raised {type(error).__name__}: {error}"
        )
        complaint.__cause__ = error
        return None, complaint
    if not isinstance(value, Tensor):
        got = type(value).__name__
    elif value.shape != shape:
        got = f"shape {tuple(value.shape)}"
    elif value.dtype != p.dtype:
        got = str(value.dtype)
    else:
        return value, FenchelError()
    return None, FenchelError(
        f"{name}: expected the function to give a float64 tensor of shape {shape} for {asked} (one "
        f"value a row: reduce the last axis alone, in the dtype that comes), but got {got}."
    )


def _agree(together: Tensor, apart: Tensor) -> bool:
    return bool(torch.allclose(together, apart, rtol=1e-8, atol=1e-12, equal_nan=True))


def _check_values(name: str, value: Tensor, has_graph: bool) -> None:
    if has_graph and not value.requires_grad:
        raise FenchelError(
            f"{name}: expected a function that torch can differentiate, but its value has no "
            "`grad_fn`: keep out of it `.detach()`, `torch.no_grad()`, NumPy, and constants."
        )
    if not bool(value.isfinite().all()):
        raise FenchelError(
            f"{name}: expected the function to be finite inside the simplex, but got "
            f"{[float(x) for x in value.detach()]} at two points with all entries above 0."
        )


#: (*rows, n) -> (*rows), each row for itself.
RowFunction = Callable[[Tensor], Tensor]

#: Its fourth inverse power, a third derivative of the steepest entropies, is still a float64.
FLOOR = 1e-40


def lifted(p: Tensor) -> Tensor:
    """``max(p, FLOOR)`` with the derivative of the identity."""
    return p + (FLOOR - p).clamp_min(0.0).detach()


def gradient(function: RowFunction, p: Tensor) -> Tensor:
    """The gradient of each row, differentiable, shape (rows, n)."""
    return torch.func.grad(_total(function))(lifted(p))


def hessian(function: RowFunction, p: Tensor, entries: Tensor) -> Tensor:
    """The Hessian of each row in some of its entries, differentiable.

    Args:
        function: twice differentiable.
        p: shape (rows, n).
        entries: positions in a row, shape (rows, m).

    Returns:
        Shape (rows, m, m).
    """
    # Reverse over reverse: every op that torch can differentiate twice has it, unlike forward mode.
    pullback = torch.func.vjp(torch.func.grad(_total(function)), lifted(p))[1]
    (rows, n), m = p.shape, entries.shape[-1]
    basis = torch.zeros(m, rows, n, dtype=p.dtype, device=p.device)
    basis = basis.scatter(-1, entries.mT.unsqueeze(-1), 1.0)
    (products,) = torch.func.vmap(pullback)(basis)
    return products.gather(-1, entries.expand(m, rows, m)).movedim(0, 1)


def _total(function: RowFunction) -> Callable[[Tensor], Tensor]:
    # Rows do not mix, so that the gradient of the sum holds the gradient of each.
    return lambda p: function(p).sum()
