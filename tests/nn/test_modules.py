"""Modules are the maps with their arguments kept; alpha can be learned."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn

import fenchel as fy
import fenchel.nn
from fenchel.nn.normalizers import MODULES
from tests.maps.cases import INF, MAPS, randn

CASES = [
    pytest.param(name, value, id=name if value is None else f"{name}-{value:g}")
    for name, map_ in MAPS.items()
    for value in map_.params[:6]
    if not (map_.capped and value > 4)  # as many as the smallest row below has
]


def build(name: str, value=None, **kwargs) -> nn.Module:
    keyword = MAPS[name].parameter
    return (
        MODULES[name](**kwargs) if keyword is None else MODULES[name](**{keyword: value}, **kwargs)
    )


def test_every_map_has_a_module():
    assert MODULES.keys() == MAPS.keys()
    assert all(module.__name__ in fenchel.nn.__all__ for module in MODULES.values())


@pytest.mark.parametrize(("name", "value"), CASES)
def test_module_is_its_map(name, value, rng):
    x, mask = randn(4, 5, rng=rng), torch.rand(4, 5, generator=rng) > 0.3
    map_ = MAPS[name]
    assert torch.equal(build(name, value)(x), map_(x, value))
    assert torch.equal(build(name, value, dim=0)(x), map_(x, value, dim=0))
    assert not torch.equal(build(name, value, dim=0)(x), build(name, value)(x))
    assert torch.equal(build(name, value)(x, mask), map_(x, value, mask=mask))
    assert not torch.equal(build(name, value)(x, mask), build(name, value)(x))


@pytest.mark.parametrize(("name", "value"), CASES)
def test_defaults_are_those_of_the_map(name, value, rng):
    x = randn(4, 5, rng=rng)
    assert torch.equal(MODULES[name]()(x), MAPS[name](x))
    if value not in MAPS[name].params[:1]:
        assert not torch.equal(MODULES[name]()(x), build(name, value)(x))


@pytest.mark.parametrize("name", MAPS)
def test_gamma(name, rng):
    x = randn(4, 5, rng=rng)
    module = MODULES[name](gamma=0.5)
    assert torch.equal(module(x), MAPS[name](x, gamma=0.5))
    assert not torch.equal(module(x), MODULES[name]()(x))
    assert repr(module).endswith(", gamma=0.5)") or repr(module).endswith("(dim=-1, gamma=0.5)")
    assert torch.equal(evaluated(module)(x), module(x))


@pytest.mark.parametrize("name", [name for name in MAPS if MAPS[name].declared.lengths])
def test_lengths(name, rng):
    x, lengths = randn(4, 5, rng=rng), torch.tensor([5, 3, 1, 4])
    assert torch.equal(MODULES[name](0.3)(x, lengths=lengths), MAPS[name](x, 0.3, lengths=lengths))
    assert not torch.equal(MODULES[name](0.3)(x, lengths=lengths), MODULES[name](0.3)(x))


def evaluated(module: nn.Module) -> nn.Module:
    return eval(repr(module), vars(fenchel.nn) | {"float": float})


@pytest.mark.parametrize(("name", "value"), CASES)
def test_repr_evaluates_back(name, value, rng):
    x = randn(4, 5, rng=rng)
    for dim in (-1, 0):
        module = build(name, value, dim=dim)
        again = evaluated(module)
        assert type(again) is type(module) and repr(again) == repr(module)
        assert torch.equal(again(x), module(x))


@pytest.mark.parametrize(("name", "value"), CASES)
def test_fixed_modules_hold_no_state(name, value):
    module = build(name, value)
    assert not list(module.parameters()) and not module.state_dict()
    assert repr(pickle.loads(pickle.dumps(module))) == repr(module)


@pytest.mark.parametrize(
    "normalizer",
    [*(name for name in MAPS if not MAPS[name].capped), "fusedmax:0.2", fy.nn.Oscarmax(0.05)],
    ids=str,
)
def test_in_attention(normalizer, rng):
    attention = fy.nn.MultiheadAttention(
        8, 2, batch_first=True, dtype=torch.float64, normalizer=normalizer
    )
    x = randn(3, 6, 8, rng=rng)
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, 4:] = True
    out, weights = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert (weights[1, :, :, 4:] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 6).double())
    out.square().sum().backward()
    assert attention.in_proj_weight.grad.isfinite().all()


# ---------------------------------------------------------------------------------- learned alpha


def learned(**kwargs) -> fy.nn.Entmax:
    return fy.nn.Entmax(learnable=True, **kwargs)


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (1.25, 3.0)])
@pytest.mark.parametrize("alpha", [1.3, 1.5, 1.9])
@pytest.mark.parametrize("shape", [(), (8, 1, 1)], ids=str)
def test_learned_alpha_starts_where_asked(alpha, low, high, shape):
    module = learned(alpha=alpha, shape=shape, low=low, high=high)
    assert module.alpha.shape == shape
    torch.testing.assert_close(module.alpha, torch.full(shape, alpha), atol=1e-6, rtol=0)
    assert [name for name, _ in module.named_parameters()] == ["alpha_logit"]


def test_fixed_alpha_is_the_number_given():
    assert fy.nn.Entmax(1.7).alpha == 1.7
    assert isinstance(fy.nn.Entmax(alpha=2).alpha, float)


def test_learned_alpha_never_leaves_its_bounds(rng):
    module = learned(low=1.2, high=1.6)
    x = randn(3, 9, rng=rng, dtype=torch.float32)
    for logit, bound in ((-1e4, 1.2), (1e4, 1.6)):
        with torch.no_grad():
            module.alpha_logit.fill_(logit)
        assert module.alpha.item() == pytest.approx(bound)
        torch.testing.assert_close(module(x), fy.entmax(x, bound))
    module.reset_parameters()
    assert module.alpha.item() == pytest.approx(1.5)


def test_low_and_high_change_the_gradient(rng):
    x = randn(3, 9, rng=rng, dtype=torch.float32)
    grads = []
    for bounds in ({}, {"low": 1.4}, {"high": 1.6}):
        module = learned(alpha=1.5, **bounds)
        module(x).square().sum().backward()
        grads.append(module.alpha_logit.grad.item())
    assert len(set(grads)) == 3


def test_one_alpha_a_head(rng):
    heads = learned(shape=(2, 1, 1))
    with torch.no_grad():
        heads.alpha_logit.copy_(torch.tensor([-2.0, 2.0]).reshape(2, 1, 1))
    x = randn(5, 2, 3, 7, rng=rng, dtype=torch.float32)
    p, alpha = heads(x), heads.alpha.flatten().tolist()
    for head in range(2):
        torch.testing.assert_close(p[:, head], fy.entmax(x[:, head], alpha[head]))
    p.square().sum().backward()
    assert heads.alpha_logit.grad.shape == (2, 1, 1) and (heads.alpha_logit.grad != 0).all()


def test_state_dict_round_trip(rng):
    module = learned(alpha=1.3, shape=(4, 1))
    with torch.no_grad():
        module.alpha_logit += randn(4, 1, rng=rng, dtype=torch.float32)
    other = learned(alpha=1.7, shape=(4, 1))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.alpha, module.alpha)
    assert torch.equal(copy.deepcopy(module).alpha, module.alpha)
    assert list(module.state_dict()) == ["alpha_logit"]


@pytest.mark.parametrize("shape", [(), (8, 1, 1)], ids=str)
def test_repr_of_a_learned_one_evaluates_back(shape):
    module = learned(alpha=1.25, dim=-2, shape=shape, low=1.1, high=3.0)
    assert repr(module) == (
        f"Entmax(alpha=1.25, dim=-2, learnable=True, shape={shape}, low=1.1, high=3.0)"
    )
    again = evaluated(module)
    assert repr(again) == repr(module) and torch.equal(again.alpha, module.alpha)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=["float64", "float16"])
def test_moves_with_its_dtype(dtype):
    module = learned().to(dtype)
    assert module.alpha.dtype == dtype
    assert module(torch.zeros(3, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(("start", "goal"), [(1.8, 1.2), (1.2, 1.8)])
def test_alpha_learns(start, goal, rng):
    """From the answers of one alpha, another finds it."""
    x = randn(64, 10, rng=rng, dtype=torch.float32)
    target = fy.entmax(x, goal)
    module = learned(alpha=start)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        (module(x) - target).square().sum().backward()
        optimizer.step()
    assert module.alpha.item() == pytest.approx(goal, abs=0.01)


def test_a_network_learns_to_attend_with_it(rng):
    """Scores and alpha together: pick out the one key that matches, and pay for every other."""
    keys = torch.eye(6)
    scorer = nn.Linear(6, 6, bias=False)
    with torch.no_grad():
        scorer.weight.zero_()
    attend = learned(alpha=1.1)
    optimizer = torch.optim.Adam([*scorer.parameters(), *attend.parameters()], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        (attend(scorer(keys)) - keys).square().sum().backward()
        optimizer.step()
    p = attend(scorer(keys))
    assert torch.equal(p.argmax(-1), torch.arange(6))
    assert (p == 0).sum() > 15 and attend.alpha > 1.1


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fy.nn.Entmax(alpha=0),
            "nn.Entmax: `alpha` must be above 0 (1 is softmax, 2 is sparsemax); got 0.",
        ),
        (
            lambda: fy.nn.Entmax(math.nan),
            "nn.Entmax: `alpha` must be above 0 (1 is softmax, 2 is sparsemax); got nan.",
        ),
        (
            lambda: fy.nn.Entmax(torch.tensor(1.5)),
            "nn.Entmax: expected `alpha` to be a number, but got Tensor.",
        ),
        (
            lambda: fy.nn.Entmax(2.0, learnable=True),
            "nn.Entmax: a learned `alpha` must start strictly between low=1 and high=2; got 2.",
        ),
        (
            lambda: fy.nn.Entmax(learnable=1),
            "nn.Entmax: expected `learnable` to be a bool, but got 1.",
        ),
        (
            lambda: fy.nn.Entmax(low=0.0),
            "nn.Entmax: `low` must be above 0 (1 is softmax, 2 is sparsemax); got 0.0.",
        ),
        (
            lambda: fy.nn.Entmax(low=2.0, high=1.5),
            "nn.Entmax: expected `low` < `high` < inf, but got low=2, high=1.5.",
        ),
        (
            lambda: fy.nn.Entmax(high=INF),
            "nn.Entmax: expected `low` < `high` < inf, but got low=1, high=inf.",
        ),
        (
            lambda: fy.nn.Entmax(shape=8),
            "nn.Entmax: expected `shape` to be a tuple of positive sizes such as (8, 1, 1), but "
            "got 8.",
        ),
        (
            lambda: fy.nn.Entmax(shape=(8, 0)),
            "nn.Entmax: expected `shape` to be a tuple of positive sizes such as (8, 1, 1), but "
            "got (8, 0).",
        ),
        (
            lambda: fy.nn.Normmax(0.5),
            "nn.Normmax: `q` must be at least 1 (1 is argmax, inf is uniform on the support "
            "of sparsemax); got 0.5.",
        ),
        (
            lambda: fy.nn.Budget(-1),
            "nn.Budget: `k` must be a finite number of at least 0 (the mass to distribute); "
            "got -1.",
        ),
        (
            lambda: fy.nn.Budget(INF),
            "nn.Budget: `k` must be a finite number of at least 0 (the mass to distribute); "
            "got inf.",
        ),
        (
            lambda: fy.nn.Fusedmax(-1.0),
            "nn.Fusedmax: `lam` must be at least 0 (0 is sparsemax); got -1.0.",
        ),
        (
            lambda: fy.nn.SqPnormMax(0.5),
            "nn.SqPnormMax: `q` must be at least 1 (1 is argmax, 2 is sparsemax); got 0.5.",
        ),
        (
            lambda: fy.nn.SqPnormMax(gamma=0),
            "nn.SqPnormMax: `gamma` must be a finite number above 0; got 0.",
        ),
        (
            lambda: fy.nn.Renyimax(2.0),
            "nn.Renyimax: `beta` must be in (0, 1] (1 is softmax; above it the entropy is not "
            "concave); got 2.0.",
        ),
        (
            lambda: fy.nn.Renyimax(torch.tensor(0.5)),
            "nn.Renyimax: expected `beta` to be a number, but got Tensor.",
        ),
        (
            lambda: fy.nn.Budget("2"),
            "nn.Budget: expected `k` to be a number, but got str.",
        ),
    ],
)
def test_errors_come_at_construction(call, message):
    with pytest.raises(fy.FenchelError) as error:
        call()
    assert str(error.value) == message


@pytest.mark.parametrize("name", MAPS)
def test_dim_is_checked_at_construction(name):
    module = MODULES[name]
    with pytest.raises(fy.FenchelError) as error:
        module(dim="last")
    assert str(error.value) == (
        f"nn.{module.__name__}: expected `dim` to be an int, but got 'last'."
    )
