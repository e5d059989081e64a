from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.models import LSTMSeq2Seq, build_model
from fenchel.models._attention import GlobalAttention
from tests.models import tiny


def scores_of(attention: GlobalAttention, s: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """The scores of one state (d) against the sources (S, d), from their definitions."""
    if attention.score == "dot":
        return h @ s
    if attention.score == "general":
        return torch.stack([s @ attention.of_source.weight @ x for x in h])
    return torch.stack(
        [attention.combine @ torch.tanh(attention.of_query(s) + attention.of_source(x)) for x in h]
    )


@pytest.mark.parametrize("score", ["general", "dot", "mlp"])
def test_global_attention_is_the_papers(score, rng):
    torch.manual_seed(0)
    attention = GlobalAttention(4, score, "sparsemax").double()
    states = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
    memory = torch.randn(2, 5, 4, generator=rng, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    outputs, weights = attention(states, attention.prepare(memory, mask))
    for b, length in enumerate([5, 3]):
        for t in range(3):
            s, h = states[b, t], memory[b, :length]
            pi = fy.sparsemax(scores_of(attention, s, h))
            context = (pi[:, None] * h).sum(0)
            joint = torch.cat([attention.of_state.weight, attention.of_context.weight], 1)
            out = torch.tanh(joint @ torch.cat([s, context]) + attention.of_state.bias)
            torch.testing.assert_close(outputs[b, t], out)
            torch.testing.assert_close(weights[b, t], F.pad(pi, (0, 5 - length)))


@pytest.mark.parametrize("fed", [True, False])
def test_decoder_is_a_stack_of_cells(fed):
    """One item, by torch's LSTMCell and the paper's equations."""
    model = tiny.model("lstm", input_feeding=fed)
    assert isinstance(model, LSTMSeq2Seq)
    source, tokens = torch.tensor([[5, 6, 7, 9]]), [1, 4, 8]
    memory, (h, c) = model.encoder(model.source_embedding(source))
    keys = model.attention.prepare(memory, None)
    states = [
        (torch.cat([h[2 * k], h[2 * k + 1]], 1), torch.cat([c[2 * k], c[2 * k + 1]], 1))
        for k in range(2)
    ]
    cells = []
    for k in range(2):
        cell = torch.nn.LSTMCell(model.decoder.input_size if k == 0 else 8, 8).double()
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({name: getattr(model.decoder, f"{name}_l{k}") for name in names})
        cells.append(cell)
    out = torch.zeros(1, 8, dtype=torch.float64)
    state = model.start(source, torch.tensor([4]))
    for token in tokens:
        x = model.target_embedding(torch.tensor([token]))
        x = torch.cat([x, out], 1) if fed else x
        for k in range(2):
            states[k] = cells[k](x, states[k])
            x = states[k][0]
        out = model.attention(x[:, None], keys)[0][:, 0]
        step = model.step(state, torch.tensor([token]))
        torch.testing.assert_close(step.probabilities, model.output.probabilities(out))
        state = step.state


def test_alphas():
    model = tiny.model("lstm", attention="entmax:learned")
    assert model.alphas()["cross"].item() == 1.5
    assert not model.alphas()["cross"].requires_grad


def test_attention_maps():
    maps = tiny.model("lstm").attention_maps(tiny.batch())
    assert list(maps) == ["cross"]
    assert maps["cross"].shape == (1, 3, 1, 6, 5)
    assert (maps["cross"] == 0).any()


def test_tied_embeddings_enter_at_the_size_of_free_ones():
    wide = {"embedding": 64, "hidden": 64, "dropout": 0.0}
    for fields in ({}, {"tied_embeddings": True}):
        torch.manual_seed(0)
        model = build_model(tiny.config("lstm", **wide, **fields))
        x = model._embed(model.target_embedding, torch.arange(1, 11))
        assert 0.8 < x.std() < 1.2
        assert model.output.weight.std() < 0.2  # √d smaller
