from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_at_least, check_number, check_scores, check_tol
from fenchel._graphs import outside_graphs
from fenchel._warn import warn
from fenchel.regularizers._base import Regularizer
from fenchel.regularizers._implicit import implicit_argmax
from fenchel.solvers import SimplexSolution
from fenchel.solvers.fista import solve
from fenchel.solvers.row_function import RowFunction, check_callable, gradient, lifted, row_function


class UserDefined(Regularizer):
    """What :meth:`Regularizer.from_function` returns, and where its arguments are described."""

    def __init__(
        self,
        f: Callable[[Tensor], Tensor],
        *,
        strongly_convex: bool = True,
        gamma: float = 1.0,
        tol: float = 1e-10,
        max_iter: int = 1000,
        name: str | None = None,
    ) -> None:
        check_callable(_MAKER, f)
        if not isinstance(strongly_convex, bool):
            raise FenchelError(
                f"{_MAKER}: expected `strongly_convex` to be True or False, but got "
                f"{strongly_convex!r}."
            )
        if not isinstance(name, str | None):
            raise FenchelError(
                f"{_MAKER}: expected `name` to be a string, but got {type(name).__name__}."
            )
        self.f = f
        self.strongly_convex = strongly_convex
        self.gamma = check_number(_MAKER, "gamma", gamma, 0.0, "(and above it)")
        if not 0 < self.gamma < math.inf:
            raise FenchelError(f"{_MAKER}: `gamma` must be a finite number above 0; got {gamma!r}.")
        self.tol = check_tol(_MAKER, tol)
        self.max_iter = check_at_least(_MAKER, "max_iter", max_iter, 1)
        self.name = getattr(f, "__name__", type(f).__name__) if name is None else name

    def solve(self, scores: Tensor, dim: int = -1) -> SimplexSolution:
        """The regularized argmax along ``dim`` with its gap, iterations and status.

        It has no gradient; ``predict`` has. ``gap`` is in the units of the scores, and one number a
        row, like ``iterations`` and ``converged``. Nothing is raised or warned of when a row does
        not converge.
        """
        name = self._named("solve")
        at = check_scores(name, scores, dim)
        rows = scores.detach().movedim(at, -1)
        solution = self._solve(self._rows(name, rows), rows.double() / self.gamma)
        p = solution.p.to(scores.dtype).movedim(-1, at)
        return replace(solution, p=p, gap=self.gamma * solution.gap)

    @property
    def margin(self) -> float:
        r"""Of a symmetric Ω: :math:`\partial_1\Omega(e_1) - \partial_2\Omega(e_1)` for two classes.

        It is as torch differentiates the function at that vertex or, where that gives no number,
        next to it; ∞ if there is no limit. An Ω that treats classes differently has one margin for
        each pair of them, and this number says nothing.
        """
        name = self._named("margin")
        # 0 * inf is NaN: p * p.sqrt() has a slope of 0 at 0, but torch does not see it.
        points = torch.tensor([[1.0, 0.0], [1.0, 1e-100], [1.0, 1e-200]], dtype=torch.float64)
        try:
            f = self._rows(name, points)
        except FenchelError as error:
            raise FenchelError(f"{error} (A margin is measured on two classes.)") from error
        slopes = torch.func.grad(lambda p: f(p).sum())(points)
        exact, near, nearer = (self.gamma * (slopes[:, 0] - slopes[:, 1])).tolist()
        if math.isfinite(exact):
            return exact
        return nearer if math.isclose(near, nearer, rel_tol=1e-6) else math.inf

    def omega_rows(self, p: Tensor) -> Tensor:
        f = self._rows(self._named(), p)
        value = f(lifted(p.reshape(-1, p.shape[-1]).double()))
        return self.gamma * value.reshape(p.shape[:-1]).to(p.dtype)

    def gradient_rows(self, p: Tensor) -> Tensor:
        f = self._rows(self._named("bregman"), p)
        slope = gradient(f, p.reshape(-1, p.shape[-1]).double())
        return self.gamma * slope.reshape(p.shape).to(p.dtype)

    def predict_rows(self, scores: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
            raise FenchelError(
                f"{_MAKER}: expected no torch.func inside torch.compile, because a compiled graph "
                "cannot hold the solver; apply the transform outside of it."
            )
        return self._solved(scores)

    @outside_graphs  # the solver's loops end when their rows do
    def _solved(self, scores: Tensor) -> Tensor:
        f = self._rows(self._named("predict"), scores)
        self._refuse_learnable(f, scores)
        solutions = []

        def answer(rows: Tensor) -> Tensor:
            solutions.append(self._solve(f, rows))
            return solutions[-1].p

        # gamma * f at the scores is f at the scores / gamma: no tolerance then depends on it.
        p = implicit_argmax(scores.double() / self.gamma, f, answer, self.strongly_convex)
        self._warn_if_stopped(solutions[-1])
        return p.to(scores.dtype)

    def _rows(self, name: str, like: Tensor) -> RowFunction:
        return row_function(name, self.f, like.shape[-1], like.device)

    def _solve(self, f: RowFunction, rows: Tensor) -> SimplexSolution:
        with torch.inference_mode(False):  # in which no slope could be computed
            return solve(
                f,
                rows.clone(),
                tol=self.tol,
                max_iter=self.max_iter,
                strongly_convex=self.strongly_convex,
            )

    def _warn_if_stopped(self, solution: SimplexSolution) -> None:
        stopped = ~solution.converged & ~solution.gap.isnan()  # NaN came in: no wonder
        if bool(stopped.any()):
            warn(
                f"{self!r}: {int(stopped.sum())} of {stopped.numel()} rows did not converge in "
                f"{self.max_iter} iterations (the largest gap is "
                f"{self.gamma * float(solution.gap[stopped].amax()):.1e}); raise `max_iter` or "
                "`tol`, or rescale the scores or the function.",
            )

    def _refuse_learnable(self, f: RowFunction, like: Tensor) -> None:
        """Only the scores get a gradient: better no answer than a silent zero for the others."""
        if not torch.is_grad_enabled():
            return
        point = torch.full((1, like.shape[-1]), 1 / like.shape[-1], dtype=torch.float64)
        if f(point.to(like.device)).requires_grad:
            raise FenchelError(
                f"{self!r}: the function uses a tensor that requires grad, but gradients go to the "
                "scores alone; use `.detach()` in it, or `torch.no_grad()` around the call."
            )

    def __repr__(self) -> str:
        return f"Regularizer.from_function({self.name}, gamma={self.gamma:g})"

    def _named(self, method: str = "") -> str:
        return f"{self!r}.{method}".rstrip(".")


_MAKER = "Regularizer.from_function"
