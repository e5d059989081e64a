from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.models import PAD
from fenchel.models.output import OutputLayer

ALPHA = {"softmax": 1.0, "sparsemax": 2.0, "entmax": 1.5, "entmax:1.3": 1.3}
specs = pytest.mark.parametrize("spec", ALPHA)


def example(spec, rng, **arguments):
    layer = OutputLayer(5, 9, spec, **arguments).double()
    with torch.no_grad():
        layer.weight.copy_(2 * torch.randn(9, 5, generator=rng))
        layer.bias.copy_(torch.randn(9, generator=rng))
    hidden = torch.randn(7, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    return layer, hidden, torch.tensor([4, 2, PAD, 8, 3, PAD, 2])


@specs
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_is_that_of_the_open_tokens(spec, smoothing, rng):
    layer, hidden, target = example(spec, rng, label_smoothing=smoothing)
    rows = target != PAD
    scores = F.linear(hidden[rows], layer.weight[2:], layer.bias[2:])
    expected = fy.entmax_loss(scores, target[rows] - 2, ALPHA[spec], label_smoothing=smoothing)
    found = layer.loss(hidden, target)
    torch.testing.assert_close(found, expected)
    inputs = (hidden, layer.weight, layer.bias)
    for got, wanted in zip(
        torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        torch.testing.assert_close(got, wanted)


@specs
def test_probabilities(spec, rng):
    layer, hidden, _ = example(spec, rng)
    p = layer.probabilities(hidden)
    scores = F.linear(hidden, layer.weight[2:], layer.bias[2:])
    torch.testing.assert_close(p[:, 2:], fy.entmax(scores, ALPHA[spec]))
    assert (p[:, :2] == 0).all()
    assert ((p == 0).sum() > 14) == (spec != "softmax")
    assert layer.float().probabilities(hidden.bfloat16().float()).dtype == torch.float32


@specs
def test_support_size_is_that_of_the_last_loss(spec, rng):
    layer, hidden, target = example(spec, rng)
    assert math.isnan(layer.support_size())
    layer.loss(hidden, target)
    sizes = (layer.probabilities(hidden[target != PAD]) != 0).sum(-1)
    assert layer.support_size() == pytest.approx(float(sizes.double().mean()))


def test_the_sample_for_support_sizes_is_small(rng):
    layer = OutputLayer(5, 9)
    layer.loss(torch.randn(5000, 5, generator=rng), torch.full((5000,), 3))
    assert 256 <= layer._sample.shape[0] < 300
    assert layer.support_size() > 1


def test_shared_weight():
    table = torch.nn.Embedding(9, 5)
    layer = OutputLayer(5, 9, weight=table.weight)
    assert layer.weight is table.weight


@pytest.mark.parametrize("spec", ["fusedmax", "entmax:learned", "entmax:0.9", "entmax:nan", 2.0])
def test_refuses(spec):
    with pytest.raises(fy.FenchelError) as caught:
        OutputLayer(5, 9, spec)
    assert str(caught.value) == (
        "output: expected 'softmax', 'sparsemax', 'entmax' or 'entmax:1.3' with a number of at "
        f"least 1, but got {spec!r}."
    )
