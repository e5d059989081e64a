"""nn.Fusedmax and nn.Oscarmax, and maps that fuse inside attention."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from tests.maps.cases import randn

PAIRS = {"Fusedmax": (fy.nn.Fusedmax, fy.fusedmax), "Oscarmax": (fy.nn.Oscarmax, fy.oscarmax)}
every_pair = pytest.mark.parametrize("name", PAIRS)


@every_pair
def test_module_is_the_map(name, rng):
    module, function = PAIRS[name]
    x, mask = randn(4, 5, rng=rng), torch.rand(4, 5, generator=rng) > 0.3
    lengths = torch.tensor([5, 3, 1, 4])
    assert torch.equal(module()(x), function(x))
    assert torch.equal(module(0.3, 0.5, 0)(x), function(x, 0.3, 0.5, 0))
    assert torch.equal(module(0.3)(x, mask), function(x, 0.3, mask=mask))
    assert torch.equal(module(0.3)(x, lengths=lengths), function(x, 0.3, lengths=lengths))


@every_pair
def test_repr_is_the_call(name):
    module = PAIRS[name][0](0.25, 2.0, dim=1)
    assert repr(module) == f"{name}(lam=0.25, gamma=2.0, dim=1)"
    assert repr(eval(repr(module), vars(fy.nn))) == repr(module)


@every_pair
@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"lam": -1.0}, "`lam` must be at least 0"),
        ({"gamma": 0.0}, "`gamma` must be a finite number above 0; got 0.0"),
        ({"gamma": math.inf}, "`gamma` must be a finite number above 0; got inf"),
        ({"dim": "x"}, "expected `dim` to be an int"),
    ],
    ids=str,
)
def test_wrong_arguments(name, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        PAIRS[name][0](**kwargs)
    assert said in str(error.value)
    assert str(error.value).startswith(f"nn.{name}: ")


@pytest.mark.parametrize(
    "normalizer", [fy.nn.Fusedmax(0.2), fy.nn.Oscarmax(0.05), fy.nn.SqPnormMax(1.5)], ids=repr
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
