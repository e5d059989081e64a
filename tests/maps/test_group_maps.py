"""fusedmax and oscarmax: optimal and grouped, whatever the layout."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import fenchel as fy
from fenchel import kernels
from tests.maps.cases import GROUP_MAPS as MAPS
from tests.maps.cases import randn, same_bits
from tests.reference import REFERENCE

pytestmark = pytest.mark.usefixtures("backend")

every_map = pytest.mark.parametrize("name", MAPS)
LAMBDAS = [0.0, 0.01, 0.1, 0.7, 5.0, 1e6]


def penalty(name: str, p: torch.Tensor) -> torch.Tensor:
    if name == "fusedmax":
        return p.diff(dim=-1).abs().sum(-1)
    ranks = torch.arange(p.shape[-1] - 1, -1, -1, dtype=p.dtype)
    return (p.sort(dim=-1, descending=True).values * ranks).sum(-1)


def objective(name: str, x: torch.Tensor, p: torch.Tensor, lam: float) -> torch.Tensor:
    return (x * p).sum(-1) - 0.5 * p.square().sum(-1) - lam * penalty(name, p)


# --------------------------------------------------------------------------------------- values


def test_literal_values():
    close = {"atol": 1e-7, "rtol": 0}
    torch.testing.assert_close(
        fy.oscarmax(torch.tensor([0.2, 0.1, -0.5]), lam=0.1), torch.tensor([0.5, 0.5, 0]), **close
    )
    torch.testing.assert_close(
        fy.fusedmax(torch.tensor([1.0, 0.8, 0.0, -3.0]), lam=0.2),
        torch.tensor([0.5, 0.5, 0.0, 0.0]),
        **close,
    )


@every_map
@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("lam", [0.02, 0.3])
def test_against_a_conic_solver(name, n, lam, rng):
    cvxpy = pytest.importorskip("cvxpy")
    for scale in (0.3, 1.5):
        x = randn(n, rng=rng, scale=scale)
        p = cvxpy.Variable(n)
        if name == "fusedmax":
            cost = cvxpy.norm1(cvxpy.diff(p)) if n > 1 else 0
        else:
            pairs = [cvxpy.maximum(p[i], p[j]) for i in range(n) for j in range(i)]
            cost = sum(pairs) if pairs else 0
        goal = x.numpy() @ p - 0.5 * cvxpy.sum_squares(p) - lam * cost
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cvxpy.Problem(cvxpy.Maximize(goal), [p >= 0, cvxpy.sum(p) == 1]).solve(
                solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
            )
        np.testing.assert_allclose(MAPS[name](x, lam).numpy(), p.value, atol=3e-6)


@every_map
@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("n", [2, 7, 40])
def test_nothing_near_is_better(name, lam, n, rng):
    for scale in (0.2, 1.0, 5.0):
        x = randn(6, n, rng=rng, scale=scale)
        x[0] = (x[0] * 2).round() / 2  # ties
        p = MAPS[name](x, lam)
        assert (p >= 0).all()
        torch.testing.assert_close(p.sum(-1), torch.ones(6).double(), atol=1e-12, rtol=0)
        best = objective(name, x, p, lam)
        for _ in range(40):
            q = torch.rand(6, n, generator=rng).double().pow(3)
            q = q / q.sum(-1, keepdim=True)
            for step in (1e-5, 1e-2, 0.5):
                other = objective(name, x, (1 - step) * p + step * q, lam)
                assert (other <= best + 1e-12 * (1 + lam) * (1 + best.abs())).all()


@every_map
@pytest.mark.parametrize("lam", [0.0, 0.125, 0.5, 2.0, 5.0])
def test_groups_that_meet_at_the_very_end(name, lam, rng):
    """On a grid many groups meet when the penalty is spent: rounding must not turn them around."""
    for n in (2, 5, 17, 33):
        x = torch.randint(-16, 17, (300, n), generator=rng).double() / 8
        expected = REFERENCE[name](x.numpy(), lam)
        np.testing.assert_allclose(MAPS[name](x, lam).numpy(), expected, rtol=0, atol=1e-12)


@every_map
@pytest.mark.parametrize("lam", LAMBDAS)
def test_backends_agree(name, lam, rng):
    """Two algorithms: dynamic programming against the path of merging groups."""
    for n in (1, 2, 9, 64):
        x = randn(20, n, rng=rng, scale=1.5)
        x[3] = x[3].round()
        if n > 4:
            x[5, 2] = -math.inf
            x[6] = -math.inf
        found = kernels.run_groups(name, x, lam)
        with fy.use_backend("reference"):
            wanted = kernels.run_groups(name, x, lam)
        torch.testing.assert_close(found[0], wanted[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(found[2], wanted[2], atol=1e-12, rtol=0)
        same = found[1][..., 1:] == found[1][..., :-1]
        assert torch.equal(same, wanted[1][..., 1:] == wanted[1][..., :-1])


@every_map
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_lower_precision(name, dtype, rng):
    x = randn(10, 50, rng=rng, dtype=dtype)
    p = MAPS[name](x, 0.1)
    assert p.dtype == dtype
    wanted = MAPS[name](x.double(), 0.1)
    tolerance = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}[dtype]
    torch.testing.assert_close(p.double(), wanted, atol=tolerance, rtol=0)


# ----------------------------------------------------------------------------------- properties


@every_map
def test_limits(name, rng):
    x = randn(20, 9, rng=rng)
    torch.testing.assert_close(MAPS[name](x, 0.0), fy.sparsemax(x), atol=1e-14, rtol=0)
    uniform = torch.full((20, 9), 1 / 9, dtype=torch.float64)
    torch.testing.assert_close(MAPS[name](x, 1e9), uniform, atol=1e-12, rtol=0)
    torch.testing.assert_close(MAPS[name](x, math.inf), uniform, atol=1e-12, rtol=0)


@every_map
@pytest.mark.parametrize("gamma", [0.1, 2.5])
def test_gamma_scales(name, gamma, rng):
    x = randn(20, 9, rng=rng)
    torch.testing.assert_close(
        MAPS[name](x, 0.1, gamma=gamma), MAPS[name](x / gamma, 0.1), atol=1e-13, rtol=0
    )


@every_map
@pytest.mark.parametrize("c", [1e2, 1e4, -1e6])
def test_shift(name, c, rng):
    x = (randn(10, 12, rng=rng) * 8).round().float() / 8  # exact after the shift
    assert same_bits(MAPS[name](x + c, 0.1), MAPS[name](x, 0.1))


def test_symmetries(rng):
    x = randn(10, 12, rng=rng)
    order = torch.randperm(12, generator=rng)
    torch.testing.assert_close(fy.oscarmax(x[:, order]), fy.oscarmax(x)[:, order])
    torch.testing.assert_close(fy.fusedmax(x.flip(-1)), fy.fusedmax(x).flip(-1))
    assert not torch.allclose(fy.fusedmax(x[:, order]), fy.fusedmax(x)[:, order])


def test_oscarmax_shares_between_equal_scores():
    p = fy.oscarmax(torch.tensor([0.3, 0.0, 0.3, 0.3, -1.0]))
    assert p[0] == p[2] == p[3] > p[1]


@every_map
def test_groups_are_groups(name, rng):
    x = randn(50, 20, rng=rng)
    p, group, _ = kernels.run_groups(name, x, 0.2)
    for row, numbers in zip(p, group, strict=True):
        for number in numbers.unique():
            assert row[numbers == number].unique().numel() == 1
    assert (group.amax(-1) < 19).all()  # something is fused


def test_padding_pulls_at_nothing(rng):
    x = randn(6, 9, rng=rng)
    padded = torch.nn.functional.pad(x, (2, 3), value=-math.inf)
    for name, map_ in MAPS.items():
        p = map_(padded, 0.3)
        torch.testing.assert_close(p[:, 2:11], map_(x, 0.3), atol=1e-14, rtol=0, msg=name)
        assert (p[:, :2] == 0).all()
        assert (p[:, 11:] == 0).all()
    lengths = torch.tensor([9, 4, 1, 0, 7, 9])
    for map_ in MAPS.values():
        together = map_(x, 0.3, lengths=lengths)
        for row, length in enumerate(lengths.tolist()):
            if length:
                alone = map_(x[row, :length], 0.3)
                torch.testing.assert_close(together[row, :length], alone, atol=1e-14, rtol=0)
            assert (together[row, length:] == 0).all()


def test_a_masked_entry_parts_its_neighbours():
    x = torch.tensor([1.0, 0.9, -math.inf, 0.0, 0.1], dtype=torch.float64)
    p = fy.fusedmax(x, 0.04)
    levels = torch.tensor([0.96, 0.94, 0.04, 0.06], dtype=torch.float64)  # two pairs, pulled
    torch.testing.assert_close(p[[0, 1, 3, 4]], fy.sparsemax(levels), atol=1e-12, rtol=0)


@every_map
def test_bad_rows(name):
    x = torch.tensor([[0.0, math.nan, 1.0], [0.0, 1.0, 2.0], [math.inf, 0.0, 0.0], [-math.inf] * 3])
    x.requires_grad_()
    p = MAPS[name](x)
    assert p[0].isnan().all()
    assert p[2].isnan().all()
    assert (p[3] == 0).all()
    assert torch.equal(p[1], MAPS[name](x[1]))
    (gradient,) = torch.autograd.grad(p[1].sum() + p[3].sum(), x)
    assert (gradient[3] == 0).all()


@every_map
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_any_dim_and_stride(name, dim, rng):
    x = randn(4, 5, 6, rng=rng)
    wanted = MAPS[name](x.movedim(dim, -1), 0.1).movedim(-1, dim)
    assert same_bits(MAPS[name](x, 0.1, dim=dim), wanted)
    turned = x.transpose(0, 2).contiguous().transpose(0, 2)
    assert same_bits(MAPS[name](turned, 0.1, dim=dim), wanted)


@every_map
def test_one_lambda_a_row(name, rng):
    x = randn(5, 8, rng=rng)
    lam = torch.tensor([0.0, 0.05, 0.2, 1.0, 30.0]).double()[:, None]
    together = MAPS[name](x, lam)
    for row in range(5):
        alone = MAPS[name](x[row], float(lam[row]))
        torch.testing.assert_close(together[row], alone, atol=1e-14, rtol=0)


# ---------------------------------------------------------------- the approximation, and errors


def test_the_published_approximation_is_one(rng):
    x = randn(200, 6, rng=rng)
    exact, approximate = fy.oscarmax(x, 0.2), fy.oscarmax_approx(x, 0.2)
    torch.testing.assert_close(approximate.sum(-1), torch.ones(200).double())
    loss = objective("oscarmax", x, exact, 0.2) - objective("oscarmax", x, approximate, 0.2)
    assert (loss >= -1e-12).all()
    assert (loss > 1e-6).double().mean() > 0.5
    assert not torch.allclose(fy.oscarmax_approx(x + 1, 0.2), approximate)
    torch.testing.assert_close(fy.oscarmax_approx(x, 0.0), fy.sparsemax(x))
    # Large positive scores: no absolute value and no clipping plays a role, and it is exact.
    torch.testing.assert_close(fy.oscarmax_approx(x + 50, 0.2), exact, atol=1e-10, rtol=0)


def test_the_approximation_keeps_its_graph(rng):
    x = randn(4, 6, rng=rng).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: fy.oscarmax_approx(x, 0.2, gamma=0.7), x)
    for function in (fy.oscarmax_approx, fy.oscarmax):
        empty = torch.zeros(0, 3, requires_grad=True)
        function(empty).sum().backward()
        assert empty.grad.shape == (0, 3)


@every_map
@pytest.mark.parametrize("scale", [1e299, 1e300, 1e307, 1e308, 1.7e308])
def test_scores_near_the_largest_number(name, scale, backend):
    x = torch.tensor([[1.0, -1.0, 0.0, 1.0], [0.2, -0.9, -1.0, -math.inf]], dtype=torch.float64)
    for lam in (0.0, 0.05, 0.3, 1.0):
        # On the scale of 1e100 a difference of levels is as good as infinite, too.
        expected = MAPS[name](x * 1e100, lam * 1e100)
        torch.testing.assert_close(MAPS[name](x * scale, lam * scale), expected)
        large = torch.full((2, 1), lam * scale, dtype=torch.float64)
        torch.testing.assert_close(MAPS[name](x * scale, large), expected)
    torch.testing.assert_close(MAPS[name](x, scale), MAPS[name](x, 1e100))
    assert MAPS[name](x, math.inf).isfinite().all()


@every_map
@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"lam": -0.1}, "`lam` must be at least 0 (0 is sparsemax); got -0.1"),
        ({"lam": "a"}, "expected `lam` to be a number or a torch.Tensor, but got str"),
        ({"lam": torch.ones(3)}, "expected `lam` broadcastable to (2, 1)"),
        ({"gamma": 0.0}, "`gamma` must be a finite number above 0; got 0.0"),
        ({"gamma": math.inf}, "`gamma` must be a finite number above 0; got inf"),
        ({"dim": 5}, "expected `dim` in [-2, 1]"),
        ({"mask": torch.ones(2, 3)}, "expected `mask` to be a boolean tensor"),
        ({"lengths": torch.ones(3).long()}, "expected `lengths` to be an integer tensor of shape"),
        ({"lengths": torch.ones(2)}, "expected `lengths` to be an integer tensor of shape (2,)"),
        ({"lengths": [1, 2]}, "but got list"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_wrong_arguments(name, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        MAPS[name](torch.zeros(2, 3), **kwargs)
    assert said in str(error.value)
    assert str(error.value).startswith(f"{name}: ")


def test_fusedmax_learns_segments():
    """Where the answer is a stretch of positions, fusedmax learns more of it than sparsemax."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, 24, (120,), generator=generator)[:, None]
    places = torch.arange(30)
    target = ((places >= starts) & (places < starts + 6)).double() / 6
    noise = torch.randn(120, 30, 3, generator=generator, dtype=torch.float64)
    features = torch.stack([target * 6, -target * 6, torch.zeros_like(target)], -1) + noise

    def held_out_error(map_) -> float:
        # Not from 0: equal scores are one group, which nothing moves.
        weights = torch.tensor([0.5, -0.5, 0.5], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([weights], lr=0.05)
        for _ in range(150):
            optimizer.zero_grad()
            error = (map_(features[:80] @ weights) - target[:80]).square().sum(-1).mean()
            error.backward()
            optimizer.step()
        with torch.no_grad():
            return (map_(features[80:] @ weights) - target[80:]).square().sum(-1).mean().item()

    assert held_out_error(lambda s: fy.fusedmax(s, 0.2)) < 0.6 * held_out_error(fy.sparsemax)
