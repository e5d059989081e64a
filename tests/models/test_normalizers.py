from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel.maps.declaration import MAPS
from fenchel.models import NORMALIZERS, build_model, normalizer
from tests.models import tiny

SCORES = torch.tensor([[0.3, 0.1, -0.4, 1.0], [0.5, 0.4, 0.2, 0.1]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False], [True] * 4])


def specs():
    for name in sorted(NORMALIZERS.keys() & MAPS.keys()):
        declared = MAPS[name]
        yield name, declared.default, name
        for value in () if declared.argument is None else declared.argument.examples[:3]:
            yield f"{name}:{value:g}", value, name
    yield "entmax:learned", 1.5, "entmax"


@pytest.mark.parametrize(("spec", "value", "name"), list(specs()))
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_specs_name_the_maps(spec, value, name, mask):
    declared = MAPS[name]
    given = {} if declared.argument is None else {declared.argument.keyword: value}
    expected = declared.function(SCORES, mask=mask, **given)
    torch.testing.assert_close(normalizer(spec)(SCORES, mask), expected)


def test_every_name_is_in_the_specs_that_the_models_are_tested_with():
    tested = {spec.partition(":")[0] for spec in tiny.SPECS}
    others = {"structured", "entmax15"}  # which has tests of its own; which is entmax
    assert tested == NORMALIZERS.keys() - others


def test_a_budget_is_no_distribution():
    with pytest.raises(fy.FenchelError, match="normalizer: expected one of entmax, entmax15"):
        normalizer("budget:1")
    assert fy.nn.normalizer("budget:1") is not None


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
            "hardmax",
            "normalizer: expected one of entmax, entmax15, fusedmax, normmax, oscarmax, renyimax, "
            "softmax, sparsemax, sq_pnorm_max, structured, maybe with a parameter after a colon, "
            "but got 'hardmax'.",
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
            "normalizer: `alpha` must be above 0 (1 is softmax, 2 is sparsemax); got -0.5.",
        ),
    ],
)
def test_refuses(spec, message):
    with pytest.raises(fy.FenchelError) as caught:
        normalizer(spec)
    assert str(caught.value) == message
