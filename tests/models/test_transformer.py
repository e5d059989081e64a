from __future__ import annotations

import pytest
import torch

from fenchel import FenchelError
from fenchel.models import Batch, TransformerSeq2Seq
from tests.models import tiny

SOFTMAX = tiny.attention_fields("transformer", "softmax")


def torch_weights(layer: torch.nn.Module, names: dict[str, str]) -> dict[str, torch.Tensor]:
    """The parameters of one of our layers under torch's names."""
    found = {}
    for key, value in layer.state_dict().items():
        ours = next(name for name in names if key.startswith(name + "."))
        found[names[ours] + key[len(ours) :]] = value
    return found


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_softmax_is_torchs_transformer(norm):
    model = tiny.model("transformer", norm=norm, **SOFTMAX)
    assert isinstance(model, TransformerSeq2Seq)
    kwargs = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    batch = tiny.batch()
    padding = torch.arange(5) >= batch.source_lengths[:, None]
    shared = {"feedforward.0": "linear1", "feedforward.2": "linear2"}
    x = model.source_embedding(batch.source)
    for layer in model.encoder:
        torch_layer = torch.nn.TransformerEncoderLayer(8, 2, 12, **kwargs).double()
        names = {
            "attention": "self_attn",
            "around_attention.norm": "norm1",
            "around_feedforward.norm": "norm2",
            **shared,
        }
        torch_layer.load_state_dict(torch_weights(layer, names))
        x = torch_layer(x, src_key_padding_mask=padding)
    memory = model.encoder_norm(x)
    y = model.target_embedding(batch.decoder_input)
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    for layer in model.decoder:
        torch_layer = torch.nn.TransformerDecoderLayer(8, 2, 12, **kwargs).double()
        names = {
            "own": "self_attn",
            "cross": "multihead_attn",
            "around_own.norm": "norm1",
            "around_cross.norm": "norm2",
            "around_feedforward.norm": "norm3",
            **shared,
        }
        torch_layer.load_state_dict(torch_weights(layer, names))
        y = torch_layer(y, memory, tgt_mask=future, memory_key_padding_mask=padding)
    torch.testing.assert_close(model.hidden_states(batch), model.decoder_norm(y))


@pytest.mark.parametrize("spec", tiny.SPECS)
def test_no_position_sees_a_later_one(spec):
    model = tiny.model("transformer", **tiny.attention_fields("transformer", spec))
    ends = ([4, 5, 6, 7], [4, 5, 8, 9])
    first, second = (model.probabilities(Batch.collate([([5, 6], end)]))[0] for end in ends)
    torch.testing.assert_close(first[:3], second[:3], rtol=0, atol=1e-14)
    assert not torch.allclose(first[3], second[3])


def test_positions_count():
    for positions in ("sinusoidal", "learned"):
        model = tiny.model("transformer", positions=positions)
        p, q = (model.probabilities(Batch.collate([(s, [4])])) for s in ([5, 6, 7], [7, 6, 5]))
        assert not torch.allclose(p, q)


def test_sinusoids():
    embedding = tiny.model("transformer").source_embedding
    tokens = torch.full((1, 9), 5)
    x = embedding(tokens) - embedding.tokens(tokens) * 8**0.5
    torch.testing.assert_close((x**2).sum(-1), torch.full((1, 9), 4.0, dtype=x.dtype))
    torch.testing.assert_close(x[0, 3, 0], torch.tensor(3.0, dtype=x.dtype).sin())
    torch.testing.assert_close(x[0, 3, 4], torch.tensor(3.0, dtype=x.dtype).cos())
    # The product of two positions is a function of their distance.
    torch.testing.assert_close(x[0, 2] @ x[0, 4], x[0, 6] @ x[0, 8])
    later = embedding(tokens[:, :2], 4) - embedding.tokens(tokens[:, :2]) * 8**0.5
    torch.testing.assert_close(later, x[:, 4:6])


def test_learned_positions_end():
    model = tiny.model("transformer", positions="learned", max_length=6)
    model.loss(tiny.batch())  # 6 target positions
    state = model.start(torch.tensor([[5]]), torch.tensor([1]))
    for _ in range(6):
        state = model.step(state, torch.tensor([4])).state
    for refused in (
        lambda: model.step(state, torch.tensor([4])),
        lambda: model.loss(Batch.collate([([5] * 7, [4])])),
        lambda: model.loss(Batch.collate([([5], [4] * 6)])),
    ):
        with pytest.raises(FenchelError) as caught:
            refused()
        assert str(caught.value) == (
            "TransformerSeq2Seq: expected sequences of at most `max_length` = 6 tokens, which is "
            "what learned positions know, but got 7; use sinusoidal positions."
        )


def test_attention_maps():
    model = tiny.model("transformer", layers=3, heads=4)
    maps = model.attention_maps(tiny.batch())
    shapes = {kind: tuple(weights.shape) for kind, weights in maps.items()}
    assert shapes == {
        "encoder": (3, 3, 4, 5, 5),
        "decoder": (3, 3, 4, 6, 6),
        "cross": (3, 3, 4, 6, 5),
    }
    assert (maps["decoder"].triu(1) == 0).all()
    for weights in maps.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert (maps["encoder"][:, 2, :, :, 1:] == 0).all()  # the third source has one token


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_each_attention_has_its_own_normalizer(part):
    model = tiny.model("transformer", **{**SOFTMAX, f"{part}_attention": "entmax:learned"})
    alphas = model.alphas()
    assert list(alphas) == [part]
    assert alphas[part].shape == (2, 2)
    assert not alphas[part].requires_grad
    maps = model.attention_maps(Batch.collate([([4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8])]))
    lower = torch.ones(6, 6, dtype=torch.bool).tril()
    zeros = {kind for kind, weights in maps.items() if (weights[..., lower] == 0).any()}
    assert zeros == {part}
