"""Types and options of structured regularizers: what is refused, and what an argument changes."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel.structures import SequenceScores
from tests.regularizers.test_structured_errors import T, Z
from tests.structures.case import refuses, regularizers
from tests.structures.registry import every_refused


@every_refused
def test_types_of_targets(refused):
    for omega in regularizers(refused.structure):
        sentence = f"{type(omega).__name__}.loss: expected `target` {refused.target}, but got "
        for wrong in ([0], None):
            got = f"{type(wrong).__name__}."
            refuses(sentence + got, omega.loss, refused.scores, wrong)
        if refused.shape is None:  # there are other forms, of floats too
            refuses(f"{sentence}(2, 3).", omega.loss, refused.scores, Z(2, 3))
            continue
        for dtype in (torch.float32, torch.bool):
            got = f"{refused.shape} of {dtype}."
            refuses(sentence + got, omega.loss, refused.scores, Z(refused.shape).to(dtype))


def test_integers_of_any_width_are_targets():
    x, tree = torch.randn(3, 4), fy.SparseMAP(fy.DependencyTree())
    wanted = tree.loss(x, T([0, 1, 1]))
    for dtype in (torch.int32, torch.uint8, torch.int16):
        assert torch.equal(tree.loss(x, T([0, 1, 1], dtype=dtype)), wanted)


def test_costs():
    for omega in regularizers(fy.Sequence(3)):
        name = f"{type(omega).__name__}.loss"
        scores = SequenceScores(Z(2, 4, 3), Z(3, 3))
        target = torch.ones(2, 4, dtype=torch.int64)
        refuses(
            f"{name}: `cost` must be at least 0; got -1.0.", omega.loss, scores, target, cost=-1.0
        )
        refuses(
            f"{name}: expected `cost` to be a number or a torch.Tensor, but got str.",
            omega.loss,
            scores,
            target,
            cost="hamming",
        )
        for wrong in (math.inf, torch.full((2, 4, 3), math.nan), torch.full((2, 4, 3), -math.inf)):
            refuses(
                f"{name}: expected finite numbers in `cost`, but got others.",
                omega.loss,
                scores,
                target,
                cost=wrong,
            )
        for wrong in (Z(2, 4, 3).long(), Z(4, 3)):
            refuses(
                f"{name}: expected `cost` to be a number, or a floating tensor of shape "
                f"(2, 4, 3), that of the unary scores, but got {wrong.dtype} of shape "
                f"{tuple(wrong.shape)}.",
                omega.loss,
                scores,
                target,
                cost=wrong,
            )
        assert (omega.loss(scores, target, cost=1) > omega.loss(scores, target)).all()


@pytest.mark.parametrize("wrong", [None, "tree", fy.OneOf, 3])
def test_the_structure(wrong):
    for make in (fy.MAP, fy.Marginals, fy.SparseMAP, fy.SmoothedDP):
        refuses(
            f"{make.__name__}: expected `structure` to be a fenchel.Structure, such as "
            f"DependencyTree(), but got {wrong!r}.",
            make,
            wrong,
        )


def test_numbers():
    chain, zero = fy.Sequence(2), "(0 would be MAP)"
    for make, name, more in [
        (lambda x: fy.Marginals(chain, x), "Marginals: `gamma`", ""),
        (lambda x: fy.SparseMAP(chain, x), "SparseMAP: `gamma`", f" {zero}"),
        (lambda x: fy.SmoothedDP(chain, "l2", x), "SmoothedDP: `gamma`", f" {zero}"),
    ]:
        for wrong in (0, -1.0, math.nan, math.inf):
            refuses(f"{name} must be a finite number above 0{more}; got {wrong!r}.", make, wrong)
        owner, label = name.split(": ")
        for wrong in ("1", None, True, T(1.0)):
            refuses(
                f"{owner}: expected {label} to be a number, but got {type(wrong).__name__}.",
                make,
                wrong,
            )
    for wrong in (0, math.nan, 2.0):
        refuses(
            f"SparseMAP: `tol` must be a number above 0, at most 1; got {wrong!r}.",
            lambda wrong=wrong: fy.SparseMAP(chain, tol=wrong),
        )
    refuses(
        "SparseMAP: `max_iter` must be at least 1; got 0.", lambda: fy.SparseMAP(chain, max_iter=0)
    )
    refuses(
        "SparseMAP: expected `max_iter` to be an int, but got 1.5.",
        lambda: fy.SparseMAP(chain, max_iter=1.5),
    )


def test_smoothed_programs():
    refuses(
        "SmoothedDP: expected `omega` to be 'entropy' or 'l2', but got 'l1'.",
        lambda: fy.SmoothedDP(fy.Sequence(2), "l1"),
    )
    for structure in (fy.DependencyTree(), fy.OneOf(), fy.Assignment()):
        refuses(
            "SmoothedDP: expected a structure whose `smoothings` have 'l2', such as Sequence, but "
            f"got {structure!r}; SparseMAP needs only the argmax.",
            fy.SmoothedDP,
            structure,
        )


def test_the_solver_stops_when_it_is_told_to(rng):
    x = torch.randn(4, 6, generator=rng)
    with pytest.warns(UserWarning, match="did not converge in 1 iterations") as caught:
        short = fy.SparseMAP(fy.KSubsets(3), 5.0, max_iter=1).solve(x)
    assert len(caught) == 1
    full = fy.SparseMAP(fy.KSubsets(3), 5.0).solve(x)
    assert (short.iterations <= 1).all() and (full.iterations > 1).any()
    assert (short.gap > full.gap).any() and not short.converged.all() and full.converged.all()
    loose = fy.SparseMAP(fy.KSubsets(3), 5.0, tol=0.5).solve(x)
    assert (loose.iterations <= full.iterations).all() and loose.converged.all()
    assert (loose.iterations < full.iterations).any()


def test_reprs():
    chain = fy.Sequence(2)
    assert repr(fy.MAP(chain)) == "MAP(Sequence(2))"
    assert repr(fy.Marginals(chain, 0.5)) == "Marginals(Sequence(2), gamma=0.5)"
    assert repr(fy.SparseMAP(chain)) == "SparseMAP(Sequence(2), gamma=1)"
    assert repr(fy.SmoothedDP(chain, "l2", 2)) == "SmoothedDP(Sequence(2), 'l2', gamma=2)"
