from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError, check_at_least, check_int, check_tol
from fenchel._warn import warn
from fenchel.kernels import INFEASIBLE, MAX_ITER, SOLVED
from fenchel.solvers._active_set import active_set
from fenchel.structures import Structure
from fenchel.structures.problem import Problem, refuse_unreadable


@dataclass(frozen=True)
class SparseDistribution:
    r"""A few members of a structure with weights, for every instance of a batch.

    The means are unique; the weights are one way to mix them, and other members could do as well.

    Args:
        means: the means of all parts, float64, differentiable in the scores.
        structures: the members as lists of parts, int64, with -1 in the places that are left. A
            part may occur more than once.
        weights: their weights, float64, above 0 and of sum 1, with 0 in the places that are left;
            differentiable in the scores, as long as no member enters or leaves.
        gap: the Wolfe gap :math:`\max_y \langle \theta - \mu, y - \mu \rangle`, float64. The value
            at these weights is below the maximum by at most that much.
        iterations: int64, how many members entered after the first.
        status: int64: 0 if the gap is within the tolerance, 1 if iterations ran out, 2 if rounding
            errors kept it from getting there.
        problem: what was solved.

    From :meth:`fenchel.SparseMAP.solve` the means are in the form of the scores, and the instances
    have the axes of the batch.
    """

    means: Any  # shape: (instances, parts)
    structures: Tensor  # shape: (instances, members, longest)
    weights: Tensor  # shape: (instances, members)
    gap: Tensor  # shape: (instances)
    iterations: Tensor  # shape: (instances)
    status: Tensor  # shape: (instances)

    problem: Problem | None = field(default=None, repr=False)

    @property
    def sizes(self) -> Tensor:
        """int64, how many members have a weight; shape: (instances)."""
        return (self.weights > 0).sum(-1)

    def structure(self, k: int) -> Any:
        """Member ``k`` of every instance as 0s and 1s in the form of the scores; 0s if it has none.

        Args:
            k: from 0 to the largest of ``sizes``, less 1.
        """
        assert self.problem is not None
        most = self.structures.shape[-2]
        if not -most <= check_int("SparseDistribution.structure", "k", k) < most:
            raise FenchelError(
                f"SparseDistribution.structure: expected `k` below {most}, the most members that "
                f"an instance has, but got {k}."
            )
        lists = self.structures.reshape(-1, *self.structures.shape[-2:])[:, k]
        return self.problem.means(self.problem.indicator(lists))

    @property
    def converged(self) -> Tensor:
        """bool, whether an instance's gap is within the tolerance; shape: (instances)."""
        return self.status == SOLVED


_NAME = "SparseMAP"
MAX_ITERATIONS = 10_000
TOLERANCE = 1e-12


def sparse_map(
    structure: Structure,
    problem: Problem,
    *,
    max_iter: int = MAX_ITERATIONS,
    tol: float = TOLERANCE,
) -> SparseDistribution:
    r"""The sparse distribution over a structure's members that SparseMAP finds.

    .. math:: \max_{p \in \triangle} \langle \theta, A p \rangle - \tfrac12 \|M p\|^2

    where the columns of :math:`A` are the members' counts of all parts, and those of :math:`M` of
    the unary parts, ``problem.n_unary`` of them. It is solved by the active-set method, which asks
    the structure for nothing but its best member: exact, and finite. Each instance is solved by
    itself, in float64.

    Args:
        structure: whose members.
        problem: the instances, as the structure made them.
        max_iter: the most members that may enter in an instance; a warning says when more would be
            needed.
        tol: the gap at which an instance is done, relative to 1 plus the size of the members'
            scores.

    Returns:
        A :class:`SparseDistribution`, means and weights with a graph.

    References:
        Niculae, Martins, Blondel & Cardie. SparseMAP: Differentiable Sparse Structured Inference.
        ICML 2018.
        Wolfe. Finding the Nearest Point in a Polytope. Mathematical Programming 1976.
    """
    faces = _solve(structure, problem, max_iter, tol)
    used = faces.weights > 0  # what comes after them is there for the derivative
    most = int(used.sum(1).amax()) if len(used) else 0
    return SparseDistribution(
        means=_with_graph(problem.scores, faces),
        structures=torch.where(used.unsqueeze(-1), faces.lists, -1)[:, :most].long(),
        weights=torch.where(used, _weights(problem.scores, faces), 0.0)[:, :most],
        gap=faces.gap,
        iterations=faces.iterations,
        status=faces.status,
    )


def sparse_map_means(
    structure: Structure,
    problem: Problem,
    *,
    max_iter: int = MAX_ITERATIONS,
    tol: float = TOLERANCE,
    derivative_is_rare: bool = False,
) -> Tensor:
    """The means of :func:`sparse_map` alone, (instances, parts), differentiable in the scores.

    The derivative is that of the face on which the solution lies, ``A Q A'``: 0 for a part that no
    member there uses. At a kink, where faces meet, it is that of one of them.

    Args:
        structure: whose members.
        problem: the instances, as the structure made them.
        max_iter: the most members that may enter in an instance.
        tol: the gap at which an instance is done.
        derivative_is_rare: ask for the face only when the derivative is. A loss or a maximum needs
            it for its second derivative alone, and most training steps want the first.
    """
    if not derivative_is_rare or not _needs_graph(problem.scores):
        return _with_graph(problem.scores, _solve(structure, problem, max_iter, tol))
    means = _solve(structure, problem, max_iter, tol, complete=False).means

    def face(scores: Tensor) -> kernels.Faces:
        # Solved again: what it costs is paid only by those who want it.
        again = dataclasses.replace(problem, scores=scores)
        return _solve(structure, again, max_iter, tol, complete=True)

    with_graph: Tensor = _MeansOfLateFace.apply(problem.scores, means, face)
    return with_graph


def _solve(
    structure: Structure,
    problem: Problem,
    max_iter: int,
    tol: float,
    complete: bool | None = None,
) -> kernels.Faces:
    max_iter, tol = check_at_least(_NAME, "max_iter", max_iter, 1), check_tol(_NAME, tol)
    scores = problem.scores.detach()
    if complete is None:
        complete = _needs_graph(problem.scores)
    kind = structure.kind(problem)
    faces = None
    if kind is not None:
        faces = kernels.active_set(
            kind,
            scores,
            problem.n_unary,
            problem.layout,
            problem.sizes,
            max_iter,
            tol,
            complete,
        )
    if faces is None:

        def best(rows: Tensor, slopes: Tensor) -> Tensor:
            asked = dataclasses.replace(problem, scores=slopes, sizes=problem.sizes[rows])
            return structure.best_parts(asked, slopes)

        faces = active_set(best, scores, problem.n_unary, max_iter, tol, complete)
    if bool((faces.status != SOLVED).any()):
        _refuse_infeasible(structure, faces)
        _warn_if_stopped(faces, max_iter)
    return faces


def _refuse_infeasible(structure: Structure, faces: kernels.Faces) -> None:
    wrong = faces.status == INFEASIBLE
    if bool(wrong.any()):
        raise FenchelError(structure.infeasible(int(wrong.long().argmax())))


def _warn_if_stopped(faces: kernels.Faces, max_iter: int) -> None:
    stopped = faces.status != SOLVED
    largest = float(faces.gap[stopped].amax())
    what = f"{int(stopped.sum())} of {stopped.numel()} instances"
    if bool((faces.status == MAX_ITER).any()):
        message = (
            f"{_NAME}: {what} did not converge in {max_iter} iterations (the largest gap is "
            f"{largest:.1e}); raise `max_iter` or `tol`."
        )
    else:
        message = (
            f"{_NAME}: {what} came no closer than a gap of {largest:.1e}; raise `tol`, or see "
            "whether `argmax` returns the best structure for every scores."
        )
    warn(message)


def _needs_graph(scores: Tensor) -> bool:
    return torch.is_grad_enabled() and scores.requires_grad


def _with_graph(scores: Tensor, faces: kernels.Faces) -> Tensor:
    if not _needs_graph(scores):
        return faces.means
    means: Tensor = _Means.apply(scores, faces.means, faces.lists, faces.matrix)
    return means


def _weights(scores: Tensor, faces: kernels.Faces) -> Tensor:
    if not _needs_graph(scores):
        return faces.weights
    inside = (faces.lists >= 0).flatten(1)
    taken = scores.gather(1, faces.lists.long().clamp(min=0).flatten(1))
    values = torch.where(inside, taken, 0.0).reshape(faces.lists.shape).sum(-1)
    moved = faces.matrix @ (values - values.detach()).unsqueeze(-1)  # 0, with a derivative
    return faces.weights + moved.squeeze(-1)


class _Means(torch.autograd.Function):
    """Means that are already known, with the derivative on their face."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, means: Tensor, lists: Tensor, matrix: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(lists, matrix)
        return means.view_as(means)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None
        return _FaceProduct.apply(grad, *ctx.saved_tensors), None, None, None


class _MeansOfLateFace(torch.autograd.Function):
    """The same, where the face is not known yet."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, means: Tensor, face: Callable[[Tensor], kernels.Faces]
    ) -> Tensor:
        ctx.face = face
        # The engine comes by even where nobody wants a derivative: then there is no gradient.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores)  # torch notices if they change until then
        return means.view_as(means)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None
        (scores,) = ctx.saved_tensors
        with torch.no_grad():
            faces = ctx.face(scores)
        return _FaceProduct.apply(grad, faces.lists, faces.matrix), None, None


class _FaceProduct(torch.autograd.Function):
    """A Q A' x, which is linear and symmetric: its own derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lists: Tensor, matrix: Tensor) -> Tensor:
        refuse_unreadable(x)
        ctx.save_for_backward(lists, matrix)
        return kernels.face_product(lists, matrix, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _FaceProduct.apply(grad, *ctx.saved_tensors), None, None
