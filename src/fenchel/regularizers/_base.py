from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import (
    FenchelError,
    check_at_least,
    check_mask,
    check_number,
    check_scores,
    check_tol,
)
from fenchel._dtypes import full_precision, widen
from fenchel._graphs import outside_graphs
from fenchel._guarded import finite_top
from fenchel._targets import (
    check_indices,
    check_probabilities,
    check_target,
    is_index,
    one_hot,
)
from fenchel._warn import warn
from fenchel.kernels import IGNORED
from fenchel.regularizers._envelope import envelope_of
from fenchel.regularizers._implicit import implicit_argmax
from fenchel.solvers import SimplexSolution
from fenchel.solvers.fista import solve
from fenchel.solvers.row_function import RowFunction, check_callable, gradient, lifted, row_function


class Regularizer(ABC):
    r"""A convex :math:`\Omega`, and the four things it brings.

    ==================  ==========================================================================
    ``predict(θ)``      the map :math:`\hat y_\Omega(\theta) = \arg\max_\mu \langle \theta, \mu
                        \rangle - \Omega(\mu)`
    ``conjugate(θ)``    the value :math:`\Omega^*(\theta)` of that maximum; its gradient is the map
    ``loss(θ, y)``      :math:`L_\Omega(\theta; y) = \Omega^*(\theta) + \Omega(y) - \langle \theta,
                        y \rangle`; its gradient is :math:`\hat y_\Omega(\theta) - y`
    ``margin``          how far the right score must lead for the loss to be exactly 0
    ==================  ==========================================================================

    Calling the object gives :math:`\Omega(p)`; ``bregman(y, p)`` its Bregman divergence; ``gamma *
    omega`` is :math:`\gamma \Omega`. Everything works along ``dim`` and returns one value a row;
    :func:`fenchel.fenchel_young_loss` adds weights, ignored rows, costs and reductions.

    A new one overrides ``omega_rows``, ``gradient_rows``, ``predict_rows`` and ``margin``. The
    first three see float32 or float64 tensors whose last axis is the one to work on.
    """

    # ------------------------------------------------------------------ what a new Ω brings

    @property
    @abstractmethod
    def margin(self) -> float:
        """The smallest lead of the right score at which the loss is 0; ∞ if there is none."""

    @abstractmethod
    def omega_rows(self, p: Tensor) -> Tensor:
        """Ω, shape (*rows)."""

    @abstractmethod
    def gradient_rows(self, p: Tensor) -> Tensor:
        """A (sub)gradient of Ω, up to a constant a row, shape (*rows, n)."""

    @abstractmethod
    def predict_rows(self, scores: Tensor) -> Tensor:
        """The map, differentiable, shape (*rows, n)."""

    @property
    def _parameter(self) -> Tensor | None:
        """The tensor that Ω depends on, if there is one, in the rank of the scores."""
        return None

    def slope_rows(self, p: Tensor) -> Tensor:
        """The derivative of Ω in its parameter at fixed p, shape (*rows, 1)."""
        raise NotImplementedError

    def _divergence(self, scores: Tensor, p: Tensor, target: Tensor) -> Tensor:
        """The value of the loss at p = predict(scores), shape (*rows); no graph is wanted."""
        scores, p, target = (widen(x) for x in (scores, p, target))
        gap = (p - target) * (scores - finite_top(scores))
        # An entry without mass on either side says nothing, not even -inf.
        gap = torch.where((p == 0) & (target == 0), 0.0, gap)
        value = gap.sum(-1) + self.omega_rows(target) - self.omega_rows(p)
        value = torch.where(value < 0, 0.0, value)  # rounding; a NaN stays
        impossible = ((target != 0) & (scores == -math.inf)).any(-1)
        return torch.where(impossible, math.inf, value)

    # ------------------------------------------------------------------ what users call

    @staticmethod
    def from_function(
        f: Callable[[Tensor], Tensor],
        *,
        strongly_convex: bool = True,
        gamma: float = 1.0,
        tol: float = 1e-10,
        max_iter: int = 1000,
        name: str | None = None,
    ) -> UserDefined:
        r"""The regularizer :math:`\Omega = \gamma f` of any smooth convex function on the simplex.

        Its map is found by :func:`fenchel.solvers.regularized_argmax` and differentiated through
        its optimality conditions: with S the support of :math:`p = \hat y_\Omega(\theta)` and H
        the Hessian :math:`\nabla^2_{SS} \Omega(p)`, the Jacobian is

        .. math:: J_{SS} = H^{-1} - \frac{H^{-1} 1 1^\top H^{-1}}{1^\top H^{-1} 1}

        and 0 elsewhere. That costs a linear system of the size of the support in each row. Where a
        function has a regularizer of its own here, that one is faster.

        Args:
            f: convex and twice differentiable inside the simplex, in torch ops: ``(*rows, n)`` to
                ``(*rows)``, float64 to float64, the same function for every row. One of a single
                row, ``(n)`` to a number, is taken too. Convexity is not checked. An infinite slope
                at the boundary is fine: f is only seen at entries of at least 1e-40. Gradients go
                to the scores alone; an f that uses a tensor that requires grad is refused.
            strongly_convex: False if the Hessian may be singular along the simplex. The gradient is
                then that of the solution of least norm: one element of the generalized Jacobian,
                without movement in the directions where f is flat.
            gamma: a finite number above 0; below 1 the map is sparser.
            tol: the gap, relative to the size of the slopes, at which a row is done.
            max_iter: the most steps in a row; a row that needs more is warned of.
            name: what ``repr`` and messages call it; by default the name of the function.

        Returns:
            A regularizer with one more method: ``solve(scores, dim=-1)`` gives the answer with its
            gap, iterations and status, a :class:`fenchel.solvers.SimplexSolution`.

        Example:
            >>> def chain(p):  # neighbours should not both have mass
            ...     return 0.5 * (p * p).sum(-1) + 0.4 * (p[..., 1:] * p[..., :-1]).sum(-1)
            >>> omega = fy.Regularizer.from_function(chain)
            >>> omega
            Regularizer.from_function(chain, gamma=1)
            >>> scores = torch.tensor([0.9, 1.0, 0.9, 0.2])
            >>> omega.predict(scores)
            tensor([0.3571, 0.2857, 0.3571, 0.0000])
            >>> omega.loss(scores, torch.tensor(1))
            tensor(0.1786)

        References:
            Niculae & Blondel. A Regularized Framework for Sparse and Structured Neural Attention.
            NeurIPS 2017.
        """
        return UserDefined(
            f,
            strongly_convex=strongly_convex,
            gamma=gamma,
            tol=tol,
            max_iter=max_iter,
            name=name,
        )

    def __call__(self, p: Tensor, dim: int = -1) -> Tensor:
        """Ω(p) along ``dim``, for ``p`` in its domain (not checked)."""
        omega, p, dtype = self.on_rows(self._named(), p, dim)
        return omega.omega_rows(p).to(dtype)

    def predict(self, scores: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
        """The regularized argmax of ``scores`` along ``dim``.

        Args:
            scores: any shape, floating dtype; ``-inf`` is a mask.
            dim: axis of the classes.
            mask: broadcastable boolean, True where an entry may receive mass.
        """
        name = self._named("predict")
        at = check_scores(name, scores, dim)
        if mask is not None:
            check_mask(name, mask, scores)
            scores = scores.masked_fill(~mask, -math.inf)
        omega, rows, dtype = self.on_rows(name, scores, at)
        return omega.predict_rows(rows).to(dtype).movedim(-1, at)

    def conjugate(self, scores: Tensor, dim: int = -1) -> Tensor:
        """Ω*(scores), the value of the regularized maximum along ``dim``; -inf if all is masked."""
        omega, scores, dtype = self.on_rows(self._named("conjugate"), scores, dim)
        return omega.conjugate_rows(scores).to(dtype)

    def loss(self, scores: Tensor, target: Tensor, dim: int = -1) -> Tensor:
        """The Fenchel-Young loss of each row.

        Args:
            scores: any shape, floating dtype; ``-inf`` is a mask.
            target: class indices (int64, the shape of ``scores`` without ``dim``) or
                probabilities (floating, the shape of ``scores``). Values are checked on the CPU.
            dim: axis of the classes.
        """
        name = self._named("loss")
        at = check_scores(name, scores, dim)
        target = check_target(name, target, scores, at)
        if is_index(target):
            target = check_indices(name, target, scores.shape[at])
        else:
            target = target.movedim(at, -1)
            self.check_target_values(name, target)
        omega, scores, dtype = self.on_rows(name, scores, at)
        return omega.loss_rows(scores, target).to(dtype)

    def bregman(self, y: Tensor, p: Tensor, dim: int = -1) -> Tensor:
        r"""The Bregman divergence :math:`\Omega(y) - \Omega(p) - \langle \nabla\Omega(p), y - p
        \rangle` along ``dim``: the loss at a dual pair :math:`\theta = \nabla\Omega(p)`."""
        name = self._named("bregman")
        omega, y, dtype = self.on_rows(name, y, dim)
        _, p, _ = self.on_rows(name, p, dim)
        if y.shape != p.shape:
            raise FenchelError(
                f"{name}: expected `y` and `p` of one shape, but got {tuple(y.shape)} and "
                f"{tuple(p.shape)} with the classes last."
            )
        return omega._bregman(y, p).to(dtype)

    def __mul__(self, gamma: float) -> Regularizer:
        return Scaled(self, gamma)

    __rmul__ = __mul__

    @abstractmethod
    def __repr__(self) -> str: ...

    # ------------------------------------------------------------------ the same for all

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        """This Ω for rows along the last axis, that of a tensor parameter moved there too."""
        return self

    def check_target_values(self, name: str, target: Tensor) -> None:
        """Check that a target is in the domain of Ω."""
        check_probabilities(name, target)

    def on_rows(self, name: str, x: Any, dim: int) -> tuple[Regularizer, Tensor, torch.dtype]:
        """Ω and checked ``x`` with ``dim`` last, half precision as float32, and x's dtype."""
        at = check_scores(name, x, dim)
        omega, dtype = self._aligned(name, x, at), x.dtype
        return omega, full_precision(x).movedim(at, -1), dtype

    def among(self, scores: Tensor) -> Regularizer:
        """This Ω on the classes of rows that are not masked: itself, unless it counts classes or
        knows their neighbours."""
        return self

    def conjugate_rows(self, scores: Tensor) -> Tensor:
        p, omega = self.predict_rows(scores), self.among(scores)
        value = omega._conjugate_value(scores.detach(), p.detach())
        return envelope_of(omega, value, scores, p)

    def _conjugate_value(self, scores: Tensor, p: Tensor) -> Tensor:
        top = finite_top(scores)
        depth = torch.where(p == 0, 0.0, p * (scores - top)).sum(-1)
        value = top.squeeze(-1) + depth - self.omega_rows(p)
        return torch.where(scores.amax(-1) == -math.inf, -math.inf, value)

    def loss_rows(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of rows (*rows, n), with classes as (*rows) or probabilities (*rows, n).

        A row of class ``IGNORED`` has the loss and the gradient 0, whatever its scores are.
        """
        if is_index(target):
            ignored = target == IGNORED
            scores = scores.masked_fill(ignored.unsqueeze(-1), 0.0)
            rows = self._loss_of_distribution(scores, one_hot(target, scores))
            return rows.masked_fill(ignored, 0.0)
        return self._loss_of_distribution(scores, target.to(scores.dtype))

    def _loss_of_distribution(self, scores: Tensor, target: Tensor) -> Tensor:
        omega = self.among(scores)
        if target.requires_grad:  # then Ω(y) - <θ, y> counts as a function of y too
            known = torch.where(target == 0, 0.0, scores)
            linear = (target * known).sum(-1)
            return self.conjugate_rows(scores) + omega.omega_rows(target) - linear
        p = self.predict_rows(scores)
        value = omega._divergence(scores.detach(), p.detach(), target)
        return envelope_of(omega, value, scores, p, target)

    def _bregman(self, y: Tensor, p: Tensor) -> Tensor:
        linear = torch.where(y == p, 0.0, self.gradient_rows(p) * (y - p)).sum(-1)
        return self.omega_rows(y) - self.omega_rows(p) - linear

    def _named(self, method: str = "") -> str:
        return f"{type(self).__name__}.{method}".rstrip(".")


class Scaled(Regularizer):
    r""":math:`\gamma \Omega`: the temperature. Written ``gamma * omega``.

    .. math:: \hat y_{\gamma\Omega}(\theta) = \hat y_\Omega(\theta / \gamma), \qquad
        L_{\gamma\Omega}(\theta; y) = \gamma L_\Omega(\theta / \gamma; y)

    Args:
        omega: any regularizer.
        gamma: a finite number above 0; below 1 the map is sparser.

    Example:
        >>> omega = 2.0 * fy.Gini()
        >>> omega.margin, omega.predict(torch.tensor([1.0, 0.0]))
        (2.0, tensor([0.7500, 0.2500]))
    """

    def __init__(self, omega: Regularizer, gamma: float) -> None:
        if not isinstance(omega, Regularizer):
            raise FenchelError(
                f"Scaled: expected `omega` to be a Regularizer, but got {type(omega).__name__}."
            )
        self.omega = omega
        self.gamma = check_number("Scaled", "gamma", gamma, 0.0, "(and above it)")
        if not 0 < self.gamma < math.inf:
            raise FenchelError(f"Scaled: `gamma` must be a finite number above 0; got {gamma!r}.")

    @property
    def margin(self) -> float:
        """gamma times that of omega."""
        return self.gamma * self.omega.margin

    def _aligned(self, name: str, scores: Tensor, dim: int) -> Regularizer:
        return Scaled(self.omega._aligned(name, scores, dim), self.gamma)

    def check_target_values(self, name: str, target: Tensor) -> None:
        self.omega.check_target_values(name, target)

    def omega_rows(self, p: Tensor) -> Tensor:
        return self.gamma * self.omega.omega_rows(p)

    def gradient_rows(self, p: Tensor) -> Tensor:
        return self.gamma * self.omega.gradient_rows(p)

    def predict_rows(self, scores: Tensor) -> Tensor:
        return self.omega.predict_rows(scores / self.gamma)

    def conjugate_rows(self, scores: Tensor) -> Tensor:
        return self.gamma * self.omega.conjugate_rows(scores / self.gamma)

    def loss_rows(self, scores: Tensor, target: Tensor) -> Tensor:
        return self.gamma * self.omega.loss_rows(scores / self.gamma, target)

    def _bregman(self, y: Tensor, p: Tensor) -> Tensor:
        return self.gamma * self.omega._bregman(y, p)

    def __repr__(self) -> str:
        return f"{self.gamma:g} * {self.omega!r}"


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
