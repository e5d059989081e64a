"""What is special to Tsallis: the whole range of α, its limits, tiny losses, learned α."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.reference import mp_entmax
from tests.regularizers.cases import randn, tsallis

pytestmark = pytest.mark.usefixtures("backend")


def exact_loss(scores, target: int, alpha: float) -> float:
    """Through 110-digit entmax: right to the last digit, however small the loss is."""
    p = mp_entmax(scores, alpha)
    with mp.workdps(60):
        omega = tsallis(alpha)
        leads = zip(p, (s - scores[target] for s in scores), strict=True)
        linear = mp.fsum(mp.mpf(float(v)) * lead for v, lead in leads)
        return float(linear - omega([mp.mpf(float(v)) for v in p]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.25, 1.3, 1.5, 1.7, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("n", [3, 400])
def test_tiny_losses_keep_their_digits(alpha, n, dtype):
    """Just below the margin the loss is about lead²/2: all of it must not be rounding."""
    lead = 12.0 if alpha == 1 else 1 / (alpha - 1)
    for short in (1e-2, 1e-3):
        scores = torch.full((n,), -50.0 / (alpha - 0.9), dtype=dtype)
        scores[0], scores[1] = lead - short, 0.0
        got = fy.Tsallis(alpha).loss(scores, torch.tensor(0))
        wide = scores.double()
        wanted = fy.Tsallis(alpha).loss(wide, torch.tensor(0))
        assert wanted > 0
        relative = abs(float(got) - float(wanted)) / float(wanted)
        # A rounding of the scores themselves moves the loss by this much relative to it.
        assert relative <= (1e-9 if dtype == torch.float64 else 64 * 1.2e-7 * lead / short)


def test_binary_sparsemax_loss_is_the_modified_huber_loss():
    lead = torch.linspace(-3, 3, 61, dtype=torch.float64)
    scores = torch.stack([lead, torch.zeros_like(lead)], -1)
    loss = fy.Gini().loss(scores, torch.zeros(61, dtype=torch.long))
    middle = (lead - 1).square() / 4
    wanted = torch.where(lead >= 1, 0.0, torch.where(lead <= -1, -lead, middle))
    torch.testing.assert_close(loss, wanted, atol=1e-15, rtol=1e-14)


def test_limits_in_alpha(rng):
    scores, target = randn(20, 6, rng=rng, scale=2.0), torch.arange(20) % 6
    cross_entropy = F.cross_entropy(scores, target, reduction="none")
    torch.testing.assert_close(
        fy.Tsallis(1.0).loss(scores, target), cross_entropy, atol=1e-14, rtol=1e-14
    )
    top = scores.amax(-1) - scores.gather(-1, target[:, None])[:, 0]
    torch.testing.assert_close(
        fy.Tsallis(math.inf).loss(scores, target), top, atol=1e-15, rtol=1e-15
    )
    close_to_one = fy.Tsallis(1 + 1e-9).loss(scores, target)
    torch.testing.assert_close(close_to_one, cross_entropy, atol=1e-6, rtol=1e-6)
    large = fy.Tsallis(1e6).loss(scores, target)
    torch.testing.assert_close(large, top, atol=1e-5, rtol=1e-5)


def test_continuity_in_alpha(rng):
    scores, target = randn(20, 6, rng=rng, scale=2.0), torch.arange(20) % 6
    for alpha in (1.0, 1.0625, 1.2, 1.25, 1.5, 2.0, 3.0):  # where the paths change
        here = fy.Tsallis(alpha).loss(scores, target)
        for step in (1e-7, -1e-7):
            if alpha + step >= 1:
                there = fy.Tsallis(alpha + step).loss(scores, target)
                assert (here - there).abs().max() < 1e-4
    # One step of 1e-7 moves a loss by 1e-7 times its slope, which is below 100 for these scores.


@pytest.mark.parametrize("n", [4, 250])
def test_learned_alpha_one_a_row(n, rng):
    scores = randn(5, n, rng=rng).requires_grad_()
    alpha = torch.tensor([[1.0], [1.2], [1.5], [2.0], [3.0]], dtype=torch.float64)
    target = torch.arange(5) % n
    together = fy.Tsallis(alpha).loss(scores, target)
    for row in range(5):
        alone = fy.Tsallis(float(alpha[row])).loss(scores[row], target[row])
        torch.testing.assert_close(together[row], alone, atol=1e-14, rtol=1e-13)


@pytest.mark.parametrize("alpha", [1.0, 1.0001, 1.01, 1.3, 1.5, 2.0, 2.5, 5.0])
def test_gradient_in_alpha_against_mpmath(alpha, rng):
    scores = [float(v) for v in randn(6, rng=rng)]
    learned = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    loss = fy.Tsallis(learned).loss(torch.tensor(scores, dtype=torch.float64), torch.tensor(1))
    (got,) = torch.autograd.grad(loss, learned)
    h = 1e-5
    if alpha == 1:
        values = [exact_loss(scores, 1, alpha + i * h) for i in range(4)]
        wanted = (-11 * values[0] + 18 * values[1] - 9 * values[2] + 2 * values[3]) / (6 * h)
    else:
        wanted = (exact_loss(scores, 1, alpha + h) - exact_loss(scores, 1, alpha - h)) / (2 * h)
    assert abs(float(got) - wanted) < 1e-7


def test_gradients_in_scores_and_alpha(rng):
    scores = randn(5, 6, rng=rng).requires_grad_()
    alpha = torch.tensor([1.1, 1.3, 1.5, 1.8, 2.4], dtype=torch.float64)[:, None].requires_grad_()
    target = torch.tensor([0, 5, 1, 1, 2])
    soft = torch.softmax(randn(5, 6, rng=rng), -1)
    for y in (target, soft):
        assert torch.autograd.gradcheck(lambda s, a: fy.Tsallis(a).loss(s, y), (scores, alpha))  # noqa: B023
        assert torch.autograd.gradgradcheck(
            lambda s, a: fy.Tsallis(a).loss(s, y),  # noqa: B023
            (scores, alpha),
        )


def test_alpha_along_another_dim(rng):
    scores = randn(3, 4, 5, rng=rng)
    alpha = torch.tensor([1.2, 1.5, 1.7, 2.0, 2.5], dtype=torch.float64)  # one for each column
    target = torch.randint(0, 4, (3, 5), generator=rng)
    loss = fy.Tsallis(alpha.reshape(1, 1, 5)).loss(scores, target, dim=1)
    for column in range(5):
        alone = fy.Tsallis(float(alpha[column])).loss(scores[:, :, column], target[:, column], 1)
        torch.testing.assert_close(loss[:, column], alone, atol=1e-14, rtol=1e-13)


def test_probability_targets_have_a_gradient(rng):
    scores = randn(4, 5, rng=rng).requires_grad_()
    logits = randn(4, 5, rng=rng).requires_grad_()
    for alpha in (1.0, 1.5, 2.0):
        assert torch.autograd.gradcheck(
            lambda s, q: fy.Tsallis(alpha).loss(s, torch.softmax(q, -1)),  # noqa: B023
            (scores, logits),
        )
