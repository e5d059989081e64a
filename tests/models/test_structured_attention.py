"""Attention to structures: what it computes, in the LSTM, and where it is refused."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel import FenchelError
from fenchel.models import Batch, normalizer
from tests.models import tiny

SPECS = ("structured:subsets:2", "structured:chain")
PAIRS = [([5, 6, 7], [7, 6, 5]), ([5, 4, 4, 9, 7], [7]), ([11, 4], [3, 10, 4, 4, 8])]
TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def test_subsets_share_the_mass():
    scores = torch.tensor([[0.3, 0.1, -0.4, 5.0], [0.5, 0.4, 0.2, 0.1]], dtype=torch.float64)
    weights = normalizer("structured:subsets")(scores)
    torch.testing.assert_close(weights, fy.budget(scores, 2) / 2)
    assert weights[0, 3] == 0.5  # no position gets more than 1/k
    assert normalizer("structured:subsets:3")(scores).amax() <= 1 / 3


def test_a_chain_with_strong_transitions_attends_to_a_segment():
    module = normalizer("structured:chain").double()
    scores = torch.tensor([1.0, -1.5, 1.0, -9.0], dtype=torch.float64)
    assert module(scores).tolist() == [1, 0, 1, 0]
    with torch.no_grad():
        module.transitions.copy_(torch.tensor([[0.0, 0.0], [0.0, 3.0]]))
    assert module(scores).tolist() == [1, 1, 1, 0]  # neighbours pay


@pytest.mark.parametrize("spec", SPECS)
def test_steps_and_padding(spec):
    model = tiny.model("lstm", attention=spec)
    batch = Batch.collate(PAIRS)
    together = model.probabilities(batch)
    state = model.start(batch.source, batch.source_lengths)
    for position, tokens in enumerate(batch.decoder_input.unbind(1)):
        step = model.step(state, tokens)
        torch.testing.assert_close(step.probabilities, together[:, position], **TIGHT)
        state = step.state
    for row, pair in enumerate(PAIRS):
        alone = model.probabilities(Batch.collate([pair]))[0]
        torch.testing.assert_close(alone, together[row, : alone.shape[0]], **TIGHT)


@pytest.mark.parametrize("spec", SPECS)
def test_every_parameter_gets_a_gradient(spec):
    model = tiny.model("lstm", attention=spec).train()
    model.loss(Batch.collate(PAIRS)).backward()
    assert all(p.grad is not None for p in model.parameters())
    if spec == "structured:chain":
        assert model.get_parameter("attention.normalizer.transitions").grad.abs().sum() > 0


def test_a_transformer_has_no_place_for_it():
    with pytest.raises(FenchelError) as error:
        tiny.config("transformer", cross_attention="structured:chain")
    assert str(error.value) == (
        "TransformerConfig: 'structured:chain' is for the global attention of the LSTM; heads need "
        "a map of single positions, such as 'entmax'."
    )


@pytest.mark.parametrize("text", ["", ":", ":trees", ":subsets:x", ":chain:2"])
def test_wrong_specs(text):
    with pytest.raises(FenchelError) as error:
        normalizer("structured" + text)
    assert str(error.value) == (
        "normalizer: expected 'structured:subsets', 'structured:subsets:3' (of 3 positions) or "
        f"'structured:chain', but got 'structured:{text[1:]}'."
    )
