"""SparseCategorical: torch's Categorical where both have mass, and honest where there is none."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import Categorical, Distribution, Independent, constraints, kl_divergence

import fenchel as fy
from fenchel import SparseCategorical
from tests.maps.cases import INF, randn


@pytest.fixture(autouse=True)
def validation():
    """On, as in a fresh process: torch.compile turns it off for the rest of one."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(True)
    yield
    Distribution.set_default_validate_args(before)


SCORES = torch.tensor([[-2.0, 0.0, 0.5, -1.0], [0.0, 0.0, 0.0, -9.0], [5.0, 0.0, 0.0, 0.0]])


# ----------------------------------------------------------------------------------- construction


def test_scores_are_mapped_by_entmax_with_alpha():
    torch.testing.assert_close(SparseCategorical(scores=SCORES).probs, fy.entmax(SCORES, 1.5))
    for alpha in (1.0, 2.0, torch.tensor([[1.25], [2.0], [INF]])):
        d = SparseCategorical(scores=SCORES, alpha=alpha)
        assert torch.equal(d.probs, fy.entmax(SCORES, alpha))
    assert not torch.equal(
        SparseCategorical(scores=SCORES, alpha=1.0).probs, SparseCategorical(scores=SCORES).probs
    )


def test_probs_are_normalised_and_zeros_stay_zeros():
    d = SparseCategorical(torch.tensor([2.0, 0.0, 6.0]))
    assert d.probs.tolist() == [0.25, 0.0, 0.75]


def test_shapes_are_those_of_categorical():
    d, c = SparseCategorical(scores=SCORES), Categorical(logits=SCORES)
    for name in ("batch_shape", "event_shape", "param_shape", "has_enumerate_support"):
        assert getattr(d, name) == getattr(c, name)
    for shape in ((), (5,), (2, 3), (0,), torch.Size([4])):
        assert d.sample(shape).shape == torch.Size((*shape, 3))
        assert d.sample(shape).dtype == torch.int64
    with pytest.warns(FutureWarning):
        assert d.sample_n(7).shape == c.sample((7,)).shape
    assert d.mean.shape == d.variance.shape == (3,)
    assert d.mean.isnan().all() and d.variance.isnan().all()
    assert d.support.lower_bound == 0 and d.support.upper_bound == 3
    for expand in (True, False):
        assert torch.equal(d.enumerate_support(expand), c.enumerate_support(expand))
    assert d.arg_constraints == {"probs": constraints.simplex}
    assert repr(SparseCategorical(scores=SCORES[0])) == "SparseCategorical(probs: torch.Size([4]))"


def test_expand_is_categoricals():
    d = SparseCategorical(scores=SCORES, validate_args=False).expand((5, 3))
    assert isinstance(d, SparseCategorical)
    assert d.batch_shape == (5, 3) and d.probs.shape == (5, 3, 4)
    assert d._validate_args is False
    assert torch.equal(d.entropy()[2], SparseCategorical(scores=SCORES).entropy())
    assert d.sample((2,)).shape == (2, 5, 3)
    assert Independent(d, 1).log_prob(torch.zeros(5, 3)).shape == (5,)


def test_empty_batch():
    d = SparseCategorical(scores=torch.zeros(0, 3))
    assert d.sample((2,)).shape == (2, 0)
    assert d.entropy().shape == d.log_prob(d.sample()).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_a_distribution_too(dtype, rng):
    d = SparseCategorical(scores=randn(3, 4096, rng=rng, dtype=dtype))
    assert SparseCategorical(d.probs).probs.dtype == dtype
    assert d.log_prob(d.sample((9,))).isfinite().all()


# ------------------------------------------------------------------------------ density and shape


def test_log_prob_is_honest_and_broadcasts():
    d = SparseCategorical(scores=SCORES)
    every = d.log_prob(d.enumerate_support())
    assert torch.equal(every.T.exp(), d.probs.log().exp())
    assert (every.T[d.probs == 0] == -INF).all() and (d.probs == 0).any()
    assert d.log_prob(torch.tensor(2)).shape == (3,)
    assert d.log_prob(torch.zeros(7, 1)).shape == (7, 3)
    assert d.log_prob(torch.zeros(2, 3, dtype=torch.uint8)).shape == (2, 3)


def test_agrees_with_categorical_where_that_is_exact(rng):
    x = randn(20, 6, rng=rng)
    d, c = SparseCategorical(scores=x, alpha=1.0), Categorical(logits=x)
    value = c.sample((4,))
    torch.testing.assert_close(d.log_prob(value), c.log_prob(value))
    torch.testing.assert_close(d.entropy(), c.entropy())
    assert torch.equal(d.mode, c.mode)


def test_entropy_mode_and_support_size():
    d = SparseCategorical(torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]]))
    expected = [math.log(2), 0.0, -sum(p * math.log(p) for p in (0.2, 0.3, 0.5))]
    assert d.entropy().tolist() == pytest.approx(expected)
    assert d.support_size.tolist() == [2, 1, 3]
    assert d.mode.tolist() == [0, 2, 2]


def test_gradients_are_right_on_the_support(rng):
    x = randn(4, 6, rng=rng, scale=0.7).requires_grad_()
    value = SparseCategorical(scores=x).mode

    def density(x):
        return SparseCategorical(scores=x).log_prob(value)

    assert gradcheck(density, (x,))
    assert gradcheck(lambda x: SparseCategorical(scores=x).entropy(), (x,))


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.5, 2.0, 4.0])
def test_no_gradient_is_nan_off_the_support(alpha, rng):
    x = randn(50, 30, rng=rng, dtype=torch.float32, scale=20.0)
    x[:, 3] = -INF
    x.requires_grad_()
    d = SparseCategorical(scores=x, alpha=alpha)
    for value in (d.entropy(), *d.log_prob(d.enumerate_support())):
        (grad,) = torch.autograd.grad(value.sum(), x, retain_graph=True)
        assert grad.isfinite().all()
    (grad,) = torch.autograd.grad(d.log_prob(torch.tensor(3)).sum(), x)
    assert (grad == 0).all()


def test_numbers_too_small_for_a_finite_gradient_keep_their_logarithm():
    p = torch.tensor([1e-40, 1.0], requires_grad=True)
    value = SparseCategorical(p).log_prob(torch.tensor(0))
    assert value.item() == pytest.approx(-92.1, abs=0.1)
    value.backward()
    assert p.grad.isfinite().all()


# --------------------------------------------------------------------------------------- sampling


def test_samples_have_the_right_frequencies_and_never_no_mass(rng):
    torch.manual_seed(0)
    d = SparseCategorical(scores=SCORES)
    drawn = d.sample((20_000,))
    counts = torch.stack([torch.bincount(column, minlength=4) for column in drawn.T])
    assert (counts[d.probs == 0] == 0).all()
    torch.testing.assert_close(counts / 20_000, d.probs, atol=0.02, rtol=0)


def test_an_outcome_without_mass_is_replaced_even_if_torch_draws_one(monkeypatch):
    monkeypatch.setattr(torch, "multinomial", lambda p, n, *_, **__: torch.zeros(len(p), n).long())
    assert SparseCategorical(torch.tensor([0.0, 0.3, 0.7])).sample((3,)).tolist() == [2, 2, 2]
    assert SparseCategorical(torch.tensor([0.1, 0.2, 0.7])).sample((3,)).tolist() == [0, 0, 0]


def test_generator_decides():
    d = SparseCategorical(torch.ones(1000))
    a, b, c = (
        d.sample((8,), generator=torch.Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)
    )
    assert a == b != c


# --------------------------------------------------------------------------------------------- KL


def test_kl_against_the_definition():
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25])
    expected = 0.5 * math.log(2)
    for a in (SparseCategorical(p), Categorical(p)):
        for b in (SparseCategorical(q), Categorical(q), Categorical(logits=q.log())):
            if isinstance(a, SparseCategorical) or isinstance(b, SparseCategorical):
                assert kl_divergence(a, b).item() == pytest.approx(expected)
    assert kl_divergence(SparseCategorical(p), SparseCategorical(p)).item() == 0


def test_kl_is_infinite_exactly_when_q_lacks_mass_that_p_has():
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 1.0, 0.0])
    for a, b in (
        (SparseCategorical(p), SparseCategorical(q)),
        (SparseCategorical(p), Categorical(q)),
        (SparseCategorical(p), Categorical(logits=q.log())),
        (Categorical(p), SparseCategorical(q)),
        (Categorical(logits=p.log()), SparseCategorical(q)),
    ):
        assert kl_divergence(a, b) == INF
    for a, b in (
        (SparseCategorical(q), SparseCategorical(p)),
        (SparseCategorical(q), Categorical(p)),
        (Categorical(q), SparseCategorical(p)),
        (Categorical(logits=q.log()), SparseCategorical(p)),
    ):
        assert kl_divergence(a, b).item() == pytest.approx(math.log(2))


def test_kl_to_a_softmax_keeps_logits_that_underflow_as_probabilities():
    q = Categorical(logits=torch.tensor([-200.0, 0.0]))
    assert q.probs[0] == 0
    assert kl_divergence(SparseCategorical(torch.tensor([1.0, 0.0])), q).item() == 200


def test_kl_broadcasts_and_has_finite_gradients(rng):
    x, y = randn(5, 1, 4, rng=rng).requires_grad_(), randn(3, 4, rng=rng).requires_grad_()
    kl = kl_divergence(SparseCategorical(scores=x), SparseCategorical(scores=y))
    assert kl.shape == (5, 3)
    assert kl.isinf().any() and kl.isfinite().any() and (kl >= -1e-15).all()
    for grad in torch.autograd.grad(kl.sum(), (x, y)):
        assert grad.isfinite().all()
    small = randn(2, 4, rng=rng, scale=0.1).requires_grad_()
    assert gradcheck(
        lambda x, y: kl_divergence(SparseCategorical(scores=x), Categorical(logits=y)),
        (small, small.detach().roll(1, 0).requires_grad_()),
    )


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: SparseCategorical(),
            "SparseCategorical: expected exactly one of `probs` and `scores`, but got neither.",
        ),
        (
            lambda: SparseCategorical(torch.ones(2), torch.ones(2)),
            "SparseCategorical: expected exactly one of `probs` and `scores`, but got both.",
        ),
        (
            lambda: SparseCategorical([0.5, 0.5]),
            "SparseCategorical: expected `probs` to be a floating tensor with at least one "
            "dimension, but got list.",
        ),
        (
            lambda: SparseCategorical(torch.tensor(1)),
            "SparseCategorical: expected `probs` to be a floating tensor with at least one "
            "dimension, but got 0-d torch.int64.",
        ),
        (
            lambda: SparseCategorical(torch.ones(2, 0)),
            "SparseCategorical: expected at least one outcome, but `probs` of shape (2, 0) has "
            "none.",
        ),
        (
            lambda: SparseCategorical(torch.tensor([1.5, -0.5])),
            "SparseCategorical: expected `probs` >= 0, but some are not.",
        ),
        (
            lambda: SparseCategorical(torch.zeros(2)),
            "SparseCategorical: expected every row of `probs` to give a distribution, but some "
            "are NaN, infinite or without any mass.",
        ),
        (
            lambda: SparseCategorical(scores=torch.tensor([[0.0, 0.0], [-INF, -INF]])),
            "SparseCategorical: expected every row of `scores` to give a distribution, but some "
            "are NaN, infinite or without any mass.",
        ),
        (
            lambda: SparseCategorical(scores=torch.zeros(2, dtype=torch.int64)),
            "SparseCategorical: expected `scores` of a floating dtype (float64, float32, float16 "
            "or bfloat16), but got torch.int64; "
            "convert with `scores.float()`.",
        ),
        (
            lambda: kl_divergence(
                SparseCategorical(torch.ones(2)), SparseCategorical(torch.ones(3))
            ),
            "kl_divergence: expected distributions over equally many outcomes, but got 2 and 3.",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(fy.FenchelError) as error:
        call()
    assert str(error.value) == message


def test_validate_args_turns_the_checks_of_values_off():
    bad = torch.tensor([0.0, 0.0])
    assert SparseCategorical(bad, validate_args=False).probs.isnan().all()
    assert SparseCategorical(bad, validate_args=False).entropy().isnan()
    with pytest.raises(ValueError, match="within the support"):
        SparseCategorical(torch.ones(2)).log_prob(torch.tensor(2))
    Distribution.set_default_validate_args(False)
    assert SparseCategorical(bad).probs.isnan().all()
    with pytest.raises(fy.FenchelError):
        SparseCategorical(bad, validate_args=True)
