"""The Gibbs distribution: temperature, entropy, probabilities, samples, the best of them."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel import FenchelError
from tests.regularizers.structured_cases import CASES, blocks
from tests.regularizers.structured_truth import close, scores_of

pytestmark = pytest.mark.usefixtures("backend")

SMOOTH = [case for case in CASES if "entropy" in case.structure.smoothings]
DYNAMIC = [case for case in CASES if "l2" in case.structure.smoothings]

smooth = pytest.mark.parametrize("case", SMOOTH, ids=repr)
temperatures = pytest.mark.parametrize("temperature", [1.0, 0.25])


def probabilities(case, temperature):
    """Of all members of each instance."""
    return [
        (scores_of(members, row) / temperature).softmax(0)
        for members, row in zip(case.members(), case.problem.scores, strict=True)
    ]


@smooth
@temperatures
def test_entropy(case, temperature):
    ours, leaves = fy.Marginals(case.structure, temperature), case.leaves()
    wanted = [-(p * p.log()).sum() for p in probabilities(case, temperature)]
    entropy = ours.entropy(leaves, **case.sizes)
    assert entropy.shape == case.batch_shape
    close(entropy.reshape(-1), torch.stack(wanted))
    grads = torch.autograd.grad(entropy.sum(), blocks(leaves))
    assert all(grad.isfinite().all() for grad in grads)
    assert any((grad != 0).any() for grad in grads) or max(map(len, case.members())) == 1


def test_entropy_has_a_gradient():
    x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for structure in (fy.Sequence(3), fy.Alignment()):
        call = fy.Marginals(structure, 0.7).entropy
        assert torch.autograd.gradcheck(call, x.clone().requires_grad_(), fast_mode=True)


@smooth
@temperatures
def test_log_prob(case, temperature):
    ours = fy.Marginals(case.structure, temperature)
    total = torch.zeros(math.prod(case.batch_shape), dtype=torch.float64)
    every = case.members()
    for at in range(max(map(len, every))):
        chosen = [rows[min(at, len(rows) - 1)] for rows in every]
        logs = ours.log_prob(case.scores, case.natural(chosen), **case.sizes).reshape(-1)
        found = [p[min(at, len(p) - 1)].log() for p in probabilities(case, temperature)]
        close(logs, torch.stack(found))
        total += torch.where(torch.tensor([at < len(rows) for rows in every]), logs.exp(), 0.0)
    close(total, torch.ones_like(total))


def test_samples_follow_their_generator():
    x = torch.zeros(4, 3)
    ours = fy.Marginals(fy.Sequence(3))
    one, two = (ours.sample(x, 8, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    other = ours.sample(x, 8, generator=torch.Generator().manual_seed(6))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert len(ours.sample(x)) == 1


@smooth
def test_temperatures_go_from_the_best_to_the_mean_of_all(case):
    best = case.flat(fy.MAP(case.structure).predict(case.scores, **case.sizes))
    cold = case.flat(fy.Marginals(case.structure, 1e-4).predict(case.scores, **case.sizes))
    close(cold, best, 1e-9)
    hot = case.flat(fy.Marginals(case.structure, 1e9).predict(case.scores, **case.sizes))
    close(hot, torch.stack([members.mean(0) for members in case.members()]), 1e-7)


@pytest.mark.parametrize("case", DYNAMIC, ids=repr)
def test_the_smoothed_program_with_entropies_is_the_same(case):
    one, two = fy.Marginals(case.structure, 0.3), fy.SmoothedDP(case.structure, "entropy", 0.3)
    for a, b in zip(
        blocks(one.predict(case.scores, **case.sizes)),
        blocks(two.predict(case.scores, **case.sizes)),
        strict=True,
    ):
        assert torch.equal(a, b)
    assert torch.equal(
        one.conjugate(case.scores, **case.sizes), two.conjugate(case.scores, **case.sizes)
    )


def test_what_is_not_there():
    x = torch.zeros(3, 4)
    with pytest.raises(FenchelError) as error:
        fy.Marginals(fy.Assignment())
    assert str(error.value) == (
        "Marginals: Assignment: summing over all assignments is #P-hard (it is a permanent), so "
        "there is no smoothing 'entropy'; use SparseMAP, which needs only the best assignment, or "
        "`sinkhorn` for an entropic relaxation."
    )
    with pytest.raises(FenchelError) as error:
        fy.Marginals(fy.DependencyTree()).k_best(x, 2)
    assert str(error.value) == (
        "DependencyTree(single_root=True, projective=False): a list of the k best is not "
        "implemented for this structure."
    )
    for call, name in (("sample", "n"), ("k_best", "k")):
        for wrong in (0, -1):
            with pytest.raises(FenchelError) as error:
                getattr(fy.Marginals(fy.Sequence(4)), call)(x, wrong)
            assert (
                str(error.value) == f"Marginals.{call}: `{name}` must be at least 1; got {wrong}."
            )
        with pytest.raises(FenchelError) as error:
            getattr(fy.Marginals(fy.Sequence(4)), call)(x, 1.5)
        assert str(error.value) == f"Marginals.{call}: expected `{name}` to be an int, but got 1.5."
