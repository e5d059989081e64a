"""What holds for every map from scores to a distribution, and the check for a user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel.testing._failure import Check, close, derivatives, expect, run, same, sentence_of

INF = math.inf
LENGTHS = (1, 2, 5, 8, 33, 129, 1000)  # short rows have paths of their own in some kernels
WIDE = (torch.float64, torch.float32)
ATOL = {torch.float64: 1e-12, torch.float32: 1e-6}
HALF = {torch.float16: 2e-3, torch.bfloat16: 1e-2}  # how far a sum of 4096 numbers may be off


@dataclass(frozen=True)
class MapCase:
    """A map, called as ``function(scores, dim=-1, mask=None)``, and what is known of it.

    Attributes:
        function: the map.
        name: what messages call it.
        symmetric: whether it treats all entries alike.
        sparse: whether low scores get exactly 0; None if that is not to be checked.
        mass: what n unmasked entries sum to.
        shift: whether the same number may be added to all scores.
        smooth: whether it has derivatives almost everywhere, and not only 0.
        bits: whether equal rows get equal bits, whatever their batch, axis, stride and shift.
        tolerance: how far a row may be off when entries are added to it that have no mass.
    """

    function: Callable[..., Tensor]
    name: str
    symmetric: bool
    sparse: bool | None
    mass: Callable[[int], float]
    shift: bool
    smooth: bool
    bits: bool
    tolerance: float

    def __repr__(self) -> str:
        return self.name

    def __call__(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        # As a user would: `mask` is written only where there is one.
        return self.function(scores, dim=dim, **({} if mask is None else {"mask": mask}))

    def agree(self, got: Tensor, wanted: Tensor, what: str) -> None:
        """Fail unless two answers for equal rows agree."""
        if self.bits or wanted.dtype not in ATOL:
            same(got, wanted, what)
        else:
            close(got, wanted, 10 * ATOL[wanted.dtype], what)

    def gradient(self, x: Tensor, weights: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
        """p, and the gradient of ⟨weights, p⟩ in the scores."""
        x = x.detach().clone().requires_grad_()
        p = self(x, dim)
        (g,) = torch.autograd.grad(p, x, weights)
        return p.detach(), g


CHECKS: list[tuple[Check, Callable[[MapCase], bool]]] = []


def holds(when: Callable[[MapCase], bool] = lambda case: True) -> Callable[[Check], Check]:
    """Enter the decorated check into the list."""

    def enter(check: Check) -> Check:
        CHECKS.append((check, when))
        return check

    return enter


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=rng, dtype=torch.float64)).to(dtype)


# ---------------------------------------------------------------------------------------- values


@holds()
def entries_are_at_least_zero_and_have_their_sum(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            for scale in (0.1, 1.0, 5.0):
                p = case(randn(5, n, seed=n, dtype=dtype, scale=scale))
                expect(p.shape == (5, n) and p.dtype == dtype, f"expected (5, {n}) of {dtype}")
                expect(p >= 0, f"expected entries of at least 0, but got {float(p.min())!r}")
                off = ATOL[dtype] * math.log2(n + 1) * max(case.mass(n), 1)
                total = torch.full((5,), case.mass(n), dtype=torch.float64)
                close(p.double().sum(-1), total, off, f"a sum of {n} entries in {dtype},")


@holds()
def half_precision_sums_to_its_mass(case: MapCase) -> None:
    total = case.mass(4096)
    for dtype, off in HALF.items():
        for scale in (0.01, 1.0, 4.0):
            p = case(randn(4, 4096, seed=2, dtype=dtype, scale=scale)).double()
            wanted = torch.full((4,), total, dtype=torch.float64)
            close(p.sum(-1) / max(total, 1), wanted / max(total, 1), off, f"a sum in {dtype},")


@holds()
def half_precision_is_float32_rounded_once(case: MapCase) -> None:
    for dtype in HALF:
        x = randn(4, 33, seed=3, dtype=dtype)
        same(case(x), case(x.float()).to(dtype), f"the map in {dtype},")


@holds()
def lower_precision_is_close_to_float64(case: MapCase) -> None:
    for n in LENGTHS:
        x = randn(5, n, seed=n + 1, dtype=torch.float32)
        close(case(x).double(), case(x.double()), 1e-6, "the map of float32 scores,")


@holds(lambda case: case.shift)
def a_shift_changes_nothing(case: MapCase) -> None:
    for c in (1e2, 1e4, 1e6, -1e6):
        grid = (randn(6, 33, seed=4) * 8).round().float() / 8  # exact after the shift as well
        case.agree(case(grid + c), case(grid), f"the map of scores plus {c:g},")


@holds(lambda case: case.symmetric and case.bits)
def ties_get_equal_bits(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            rng = torch.Generator().manual_seed(n)
            x = torch.randint(-3, 4, (5, n), generator=rng).to(dtype) / 3
            for row, p in zip(x, case(x), strict=True):
                for value in row.unique():
                    found = p[row == value].unique()
                    expect(
                        len(found) == 1,
                        f"expected equal entries for equal scores, but got {found.tolist()}",
                    )


@holds(lambda case: case.symmetric)
def equal_scores_share_equally(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            p = case(torch.full((2, n), 0.3, dtype=dtype))
            share = torch.full_like(p, case.mass(n) / n)
            close(p, share, ATOL[dtype], f"a share of {n} equal scores,")


@holds(lambda case: case.symmetric)
def entries_follow_their_scores(case: MapCase) -> None:
    """A permutation of the scores is one of the answer, and higher scores never get less."""
    x = randn(6, 33, seed=5)
    p = case(x)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(6))
    close(case(x[:, order]), p[:, order], 1e-12, "the map of permuted scores,")
    along = p.gather(1, x.argsort(1))
    expect(along.diff(dim=1) >= -1e-15, "expected more mass for higher scores, but got less")


@holds(lambda case: case.sparse is not None)
def zeros_are_exact_or_absent(case: MapCase) -> None:
    p = case(100 * randn(6, 9, seed=7))
    if case.sparse:
        expect(p.amin(1) == 0, "expected exact zeros at low scores, but all entries have mass")
    else:
        p = case(randn(6, 9, seed=7))
        expect(p > 0, "expected mass everywhere, but some entries are 0")


# ---------------------------------------------------------------------------------------- layout


@holds()
def any_axis_can_be_normalised(case: MapCase) -> None:
    for dtype in WIDE:
        x, w = (randn(3, 4, 5, seed=s, dtype=dtype) for s in (8, 9))
        for dim in range(-3, 3):
            wanted = case(x.movedim(dim, -1).contiguous()).movedim(-1, dim)
            case.agree(case(x, dim), wanted, f"the map along dim {dim},")
            _, g = case.gradient(x, w, dim)
            last = x.movedim(dim, -1).contiguous(), w.movedim(dim, -1).contiguous()
            close(g, case.gradient(*last)[1].movedim(-1, dim), 1e-6, f"a gradient along dim {dim},")


@holds()
def strides_do_not_matter(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            x = randn(6, n, seed=n + 2, dtype=dtype)
            p = case(x)
            wide = torch.full((6, 3 * n + 2), math.nan, dtype=dtype)
            wide[:, 1 : 1 + n] = x
            cube = torch.full((6, n, 2), math.nan, dtype=dtype)
            cube[..., 1] = x
            views = {
                "a transposed tensor": x.t().contiguous().t(),
                "an unaligned slice": wide[:, 1 : 1 + n],
                "every other entry": cube[..., 1],
            }
            for what, view in views.items():
                case.agree(case(view), p, f"the map of {what},")
            case.agree(case(x[:1].expand(6, n)), p[:1].expand(6, n), "the map of an expanded row,")


@holds()
def equal_rows_give_equal_bits(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            rows = randn(3, n, seed=n + 3, dtype=dtype, scale=2.0)
            alone = torch.stack([case(row) for row in rows])
            for batch in (3, 7, 32):
                at = torch.arange(batch) % 3
                case.agree(case(rows[at]), alone[at], f"a row among {batch},")


@holds()
def scores_may_be_empty_and_are_left_alone(case: MapCase) -> None:
    for shape in ((0, 5), (2, 0, 5)):
        empty = torch.zeros(shape, dtype=torch.float64)
        same(case(empty), empty, "the map of nothing,")
    x = randn(4, 7, seed=10)
    before = x.clone()
    case.gradient(x, before)
    case(x, mask=x > 0)
    same(x, before, "the scores after the call,")


# ----------------------------------------------------------------------------------- masks, NaN


@holds()
def a_masked_entry_is_as_if_absent(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            x, w = (randn(5, n, seed=s, dtype=dtype) for s in (11, 12))
            pad = torch.full((5, 3), -INF, dtype=dtype)
            p, g = case.gradient(x, w)
            longer, grad = case.gradient(
                torch.cat([x, pad], 1), torch.cat([w, 7 + 0 * pad.exp()], 1)
            )
            off = max(ATOL[dtype], case.tolerance)
            close(longer[:, :n], p, off, "the map beside masked entries,")
            same(longer[:, n:], torch.zeros_like(pad), "the mass of a masked entry,")
            bound = 10 * off * max(1.0, float(g.abs().max()))
            close(grad[:, :n], g, bound, "the gradient beside masked entries,")
            same(grad[:, n:], torch.zeros_like(pad), "the gradient of a masked entry,")


@holds()
def a_fully_masked_row_is_zero(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            x, w = (randn(4, n, seed=s, dtype=dtype) for s in (13, 14))
            x[1] = -INF
            p, g = case.gradient(x, w)
            same(p[1], torch.zeros_like(p[1]), "a fully masked row,")
            same(g[1], torch.zeros_like(g[1]), "the gradient of a fully masked row,")
            rest = [0, 2, 3]
            case.agree(p[rest], case(x[rest]), "a row beside a fully masked one,")


@holds()
def a_mask_is_minus_infinity(case: MapCase) -> None:
    for dtype in WIDE:
        for n in LENGTHS:
            x = randn(5, n, seed=n + 4, dtype=dtype)
            mask = randn(5, n, seed=n + 5) > -0.5
            masked = x.masked_fill(~mask, -INF)
            case.agree(case(x, mask=mask), case(masked), "the map with `mask`,")


@holds()
def bad_values_spoil_their_row_only(case: MapCase) -> None:
    for dtype in WIDE:
        for bad in (math.nan, INF):
            for n in LENGTHS:
                x, w = (randn(5, n, seed=s, dtype=dtype) for s in (15, 16))
                clean, gradient = case.gradient(x, w)
                x[1, n // 2] = bad
                x[3] = -INF
                x[3, 0] = bad  # beside masked entries too
                p, g = case.gradient(x, w)
                expect(p[[1, 3]].isnan(), f"expected NaN in a row with {bad}, but got numbers")
                rest = [0, 2, 4]
                case.agree(p[rest], clean[rest], f"a row beside one with {bad},")
                case.agree(g[rest], gradient[rest], f"the gradient beside a row with {bad},")


# ------------------------------------------------------------------------------------- gradients


@holds(lambda case: case.smooth)
def derivatives_are_those_of_finite_differences(case: MapCase) -> None:
    for n, scale in ((4, 0.3), (7, 1.0)):
        x = randn(3, n, seed=17, scale=scale).requires_grad_()
        derivatives(case, [x], fast=False)


@holds(lambda case: case.shift)
def gradients_do_not_see_a_shift(case: MapCase) -> None:
    x, w = (randn(5, 33, seed=s) for s in (18, 19))
    _, g = case.gradient(x, w)
    close(g.sum(-1), torch.zeros_like(g[:, 0]), 1e-10, "a sum of the gradient,")


# ---------------------------------------------------------------------------------------- for users


def check_map(
    function: Callable[..., Tensor],
    *,
    name: str | None = None,
    symmetric: bool = True,
    sparse: bool | None = None,
    mass: float | Callable[[int], float] = 1.0,
    shift: bool = True,
    smooth: bool = True,
    bits: bool = True,
    tolerance: float = 1e-12,
) -> list[str]:
    """Hold a map from scores to a distribution to what the library's own maps are held to.

    Sums, shifts, ties, axes, strides, batches, masks, bad values, half precision, and derivatives
    of first and second order.

    Args:
        function: called as ``function(scores, dim=-1)``, and with ``mask=mask``; a map with a
            parameter is given as ``functools.partial(function, alpha=1.3)``.
        name: what messages call it; by default its own name.
        symmetric: whether it treats all entries alike. (A map that looks at neighbours does not.)
        sparse: True if low scores must get exactly 0, False if every entry must have mass, None if
            neither is promised.
        mass: what the entries sum to: a number, or a function of how many there are.
        shift: whether a number added to all scores changes nothing.
        smooth: whether the map has derivatives almost everywhere.
        bits: whether ties and equal rows get equal bits, whatever their batch, axis, stride and
            shift. Our kernels promise it; a map made of torch ops may be off by rounding errors.
        tolerance: how far an answer may move when masked entries are appended.

    Returns:
        What was checked, in words.

    Raises:
        CheckFailed: an AssertionError that names the property, what was expected and what came.

    Example:
        >>> from fenchel.testing import check_map
        >>> check_map(fy.sparsemax, sparse=True)[0]
        'sparsemax: entries are at least zero and have their sum'
    """
    if name is None:
        inner = getattr(function, "func", function)
        name = getattr(inner, "__name__", type(inner).__name__)
    total = mass if callable(mass) else lambda n: float(mass)
    case = MapCase(function, name, symmetric, sparse, total, shift, smooth, bits, tolerance)
    done = []
    for check, applies in CHECKS:
        if applies(case):
            run(name, check, case)
            done.append(f"{name}: {sentence_of(check)}")
    return done
