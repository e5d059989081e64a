from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel.models import NORMALIZERS, build_model, normalizer
from tests.models import tiny

SCORES = torch.tensor([[0.3, 0.1, -0.4, 1.0], [0.5, 0.4, 0.2, 0.1]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False], [True] * 4])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("softmax", lambda z, mask: fy.softmax(z, mask=mask)),
        ("sparsemax", lambda z, mask: fy.sparsemax(z, mask=mask)),
        ("entmax", lambda z, mask: fy.entmax(z, 1.5, mask=mask)),
        ("entmax:1.3", lambda z, mask: fy.entmax(z, 1.3, mask=mask)),
        ("entmax:learned", lambda z, mask: fy.entmax(z, 1.5, mask=mask)),
        ("fusedmax", lambda z, mask: fy.fusedmax(z, mask=mask)),
        ("fusedmax:0.3", lambda z, mask: fy.fusedmax(z, 0.3, mask=mask)),
        ("oscarmax", lambda z, mask: fy.oscarmax(z, mask=mask)),
        ("oscarmax:0.3", lambda z, mask: fy.oscarmax(z, 0.3, mask=mask)),
        ("sq_pnorm_max", lambda z, mask: fy.sq_pnorm_max(z, 1.5, mask=mask)),
        ("sq_pnorm_max:3", lambda z, mask: fy.sq_pnorm_max(z, 3.0, mask=mask)),
        ("normmax", lambda z, mask: fy.normmax(z, 2.0, mask=mask)),
        ("normmax:3", lambda z, mask: fy.normmax(z, 3.0, mask=mask)),
    ],
)
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_specs_name_the_maps(spec, expected, mask):
    torch.testing.assert_close(normalizer(spec)(SCORES, mask), expected(SCORES, mask))


def test_every_name_is_in_the_specs_that_the_models_are_tested_with():
    tested = {spec.partition(":")[0] for spec in tiny.SPECS}
    assert tested == NORMALIZERS.keys() - {"structured"}  # which has tests of its own


def test_learned_alpha_is_a_parameter():
    module = normalizer("entmax:learned")
    assert [name for name, _ in module.named_parameters()] == ["alpha_logit"]
    assert module.alpha == 1.5


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_the_table_is_open(kind, monkeypatch):
    class Uniform(torch.nn.Module):
        def forward(self, scores, mask=None):
            open_ = torch.isfinite(scores) if mask is None else mask.expand(scores.shape)
            return open_ / open_.sum(-1, keepdim=True).to(scores.dtype)

    monkeypatch.setitem(NORMALIZERS, "uniform", lambda text: Uniform())
    model = build_model(tiny.config(kind, **tiny.attention_fields(kind, "uniform:x")))
    weights = model.eval().attention_maps(tiny.batch())["cross"]
    assert weights[0, 1, 0, 0].tolist() == pytest.approx([0.2] * 5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "entmax15",
            "normalizer: expected one of softmax, sparsemax, entmax, fusedmax, oscarmax, "
            "sq_pnorm_max, normmax, structured, maybe with a parameter after a colon, but got "
            "'entmax15'.",
        ),
        (
            "entmax:big",
            "normalizer: expected a number after the colon of 'entmax:…', but got 'big'.",
        ),
        (
            "softmax:2",
            "normalizer: expected 'softmax' without a parameter, but got 'softmax:2'.",
        ),
        (
            1.5,
            "normalizer: expected a text such as 'entmax:1.5', but got float.",
        ),
        (
            "entmax:-0.5",
            "nn.Entmax: `alpha` must be above 0 (1 is softmax, 2 is sparsemax); got -0.5.",
        ),
    ],
)
def test_refuses(spec, message):
    with pytest.raises(fy.FenchelError) as caught:
        normalizer(spec)
    assert str(caught.value) == message
