r"""Maps inside a compiled ``torch.func`` transform: a Taylor expansion in plain torch ops.

torch.compile cannot look into a registered op or into the jvp of an ``autograd.Function`` when it
traces ``torch.func``, and differentiates whatever ops it finds. So there a map is given as ops with
the right derivatives: with constants :math:`\theta_0, p_0` that equal input and output, and the
step :math:`s = \theta - \theta_0`, which is 0 and carries the derivatives,

.. math:: p = p_0 + \int_0^1 J(p(\theta_0 + t s))\, s \, dt

solved by one step of a Runge-Kutta method. One that is accurate to order k has the first k
derivatives at s = 0 exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel._graphs import constant_in_graphs

#: How p moves at a point of the way: (p, t) to dp/dt.
Flow = Callable[[Tensor, float], Tensor]

_HIGHEST = 4


@constant_in_graphs
def derivative_order() -> int:
    """How many derivatives may be taken: one for each transform, and one for autograd outside."""
    kinds = torch._C._functorch.TransformType
    stack = torch._C._functorch.get_interpreter_stack() or []
    return 1 + sum(level.key() in (kinds.Grad, kinds.Jvp) for level in stack)


def step_from(x: Tensor) -> tuple[Tensor, Tensor]:
    """The value of ``x`` as a constant, and ``x`` minus it: 0, with the derivatives of x."""
    known = x.detach()
    return known, torch.where(known.isfinite(), x - known, 0.0)


def expand(name: str, p: Tensor, flow: Flow, order: int) -> Tensor:
    """``p``, a constant, with the derivatives that ``flow`` gives it, up to ``order`` of them."""
    if order > _HIGHEST:
        raise FenchelError(
            f"{name}: expected at most {_HIGHEST - 1} nested derivatives inside torch.compile, but "
            f"got {order - 1}; call it outside of torch.compile."
        )
    first = flow(p, 0.0)
    if order == 1:
        return p + first
    second = flow(p + 0.5 * first, 0.5)
    if order == 2:
        return p + second
    third = flow(p + 0.5 * second, 0.5)
    last = flow(p + third, 1.0)
    return p + (first + 2 * second + 2 * third + last) / 6
