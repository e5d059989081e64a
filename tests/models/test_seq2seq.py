"""What every model must do, whatever its kind, attention and output."""

from __future__ import annotations

import pytest
import torch

from fenchel.models import BOS, EOS, PAD, Batch, Seq2Seq
from tests.models import tiny

kinds = pytest.mark.parametrize("kind", tiny.KINDS)
specs = pytest.mark.parametrize("spec", tiny.SPECS)
VARIANTS = {
    "lstm": [{}, {"input_feeding": False}, {"bidirectional": False}, {"attention_score": "mlp"}],
    "transformer": [{}, {"norm": "post"}, {"positions": "learned"}, {"attention_dropout": 0.2}],
}
variants = pytest.mark.parametrize(
    ("kind", "fields"),
    [(kind, fields) for kind in tiny.KINDS for fields in VARIANTS[kind]],
    ids=str,
)
TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def stepwise(model: Seq2Seq, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (B, T, V) and attention (B, T, S), one step after the other."""
    state = model.start(batch.source, batch.source_lengths)
    found, looked = [], []
    for tokens in batch.decoder_input.unbind(1):
        step = model.step(state, tokens)
        found.append(step.probabilities)
        looked.append(step.attention)
        state = step.state
    return torch.stack(found, 1), torch.stack(looked, 1)


def check_steps(model: Seq2Seq) -> None:
    batch = tiny.batch()
    p, attention = stepwise(model, batch)
    torch.testing.assert_close(p, model.probabilities(batch), **TIGHT)
    maps = model.attention_maps(batch)["cross"].mean((0, 2))
    torch.testing.assert_close(attention, maps, **TIGHT)
    places = torch.arange(batch.source.shape[1])
    padding = (places >= batch.source_lengths[:, None])[:, None].expand(attention.shape)
    assert (attention[padding] == 0).all()
    torch.testing.assert_close(attention.sum(-1), torch.ones_like(attention[..., 0]), **TIGHT)


def check_padding(model: Seq2Seq) -> None:
    together = model.probabilities(tiny.batch())
    losses = []
    for row, pair in enumerate(tiny.PAIRS):
        alone = Batch.collate([pair])
        p = model.probabilities(alone)[0]
        torch.testing.assert_close(p, together[row, : p.shape[0]], **TIGHT)
        losses.append(model.loss(alone) * alone.tokens)
    total = torch.stack(losses).sum() / tiny.batch().tokens
    torch.testing.assert_close(total, model.loss(tiny.batch()), **TIGHT)


@kinds
@specs
def test_steps_say_what_training_sees(kind, spec):
    check_steps(tiny.model(kind, **tiny.attention_fields(kind, spec)))


@variants
def test_steps_of_variants(kind, fields):
    check_steps(tiny.model(kind, **fields))


@kinds
@specs
def test_padding_changes_nothing(kind, spec):
    check_padding(tiny.model(kind, **tiny.attention_fields(kind, spec)))


@variants
def test_padding_of_variants(kind, fields):
    check_padding(tiny.model(kind, **fields))


@kinds
def test_wider_padding_changes_nothing(kind):
    model, batch = tiny.model(kind), tiny.batch()
    source, target = (torch.nn.functional.pad(x, (0, 4)) for x in (batch.source, batch.target))
    wide = Batch(source, batch.source_lengths, target)
    torch.testing.assert_close(model.loss(wide), model.loss(batch), **TIGHT)
    p = stepwise(model, Batch(source, batch.source_lengths, batch.target))[0]
    torch.testing.assert_close(p, model.probabilities(batch), **TIGHT)


@kinds
@pytest.mark.parametrize("output", ["softmax", "sparsemax", "entmax", "entmax:1.3"])
def test_outputs(kind, output):
    model = tiny.model(kind, output=output)
    p = model.probabilities(tiny.batch())
    assert p.shape == (3, 6, 11)
    torch.testing.assert_close(p.sum(-1), torch.ones(3, 6, dtype=p.dtype))
    assert (p[..., [PAD, BOS]] == 0).all()
    assert bool((p[..., EOS:] == 0).any()) == (output != "softmax")
    check_steps(model)


@kinds
def test_step_types(kind):
    model, batch = tiny.model(kind).float(), tiny.batch()
    state = model.start(batch.source, batch.source_lengths)
    assert state.rows == 3
    step = model.step(state, torch.full((3,), BOS))
    assert step.probabilities.shape == (3, 11)
    assert step.probabilities.dtype == torch.float32
    assert not step.probabilities.requires_grad
    assert step.attention.shape == (3, 5)
    assert model.loss(batch).shape == ()


@kinds
def test_select_reorders_repeats_and_drops(kind):
    model, batch = tiny.model(kind), tiny.batch()
    state = model.start(batch.source, batch.source_lengths)
    state = model.step(state, torch.tensor([BOS] * 3)).state
    state = model.step(state, torch.tensor([7, 5, 9])).state
    index = torch.tensor([2, 0, 0, 2, 2])
    tokens = torch.tensor([4, 5, 6, 7, 8])
    picked = model.step(state.select(index), tokens)
    assert picked.state.rows == 5
    for row, (i, token) in enumerate(zip(index, tokens, strict=True)):
        single = model.step(state.select(i[None]), token[None])
        torch.testing.assert_close(picked.probabilities[row], single.probabilities[0], **TIGHT)
        torch.testing.assert_close(picked.attention[row], single.attention[0], **TIGHT)
    again = model.step(picked.state.select(torch.tensor([1, 2])), torch.tensor([4, 4]))
    assert not torch.equal(again.probabilities[0], again.probabilities[1])  # 5 and 6 came before


@kinds
def test_select_within_a_source_copies_no_source(kind):
    model = tiny.model(kind)
    state = model.start(torch.tensor([[5, 6], [7, 8]]), torch.tensor([2, 2]))
    beam = state.select(torch.tensor([0, 0, 1, 1]))
    assert beam.select(torch.tensor([1, 0, 3, 3])).memory is beam.memory
    assert beam.select(torch.tensor([1, 2, 3, 3])).memory is not beam.memory
    assert beam.select(torch.tensor([0, 1])).memory is not beam.memory


@kinds
def test_a_state_is_not_changed_by_its_steps(kind):
    model, batch = tiny.model(kind), tiny.batch()
    state = model.start(batch.source, batch.source_lengths)
    first = model.step(state, torch.tensor([BOS] * 3))
    model.step(first.state, torch.tensor([4, 5, 6]))
    second = model.step(state, torch.tensor([BOS] * 3))
    torch.testing.assert_close(second.probabilities, first.probabilities, rtol=0, atol=0)


@variants
def test_every_parameter_learns(kind, fields):
    model = tiny.model(kind, **fields, **tiny.attention_fields(kind, "entmax:learned")).train()
    model.loss(tiny.batch()).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


@kinds
def test_gradients_are_right(kind):
    model = tiny.model(kind, **tiny.attention_fields(kind, "softmax"), output="softmax")
    batch = tiny.batch()
    model.loss(batch).backward()
    generator = torch.Generator().manual_seed(0)
    for name, p in model.named_parameters():
        way = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                p.add_(way, alpha=sign * 1e-5)
                losses.append(model.loss(batch))
                p.sub_(way, alpha=sign * 1e-5)
        slope = (losses[0] - losses[1]) / 2e-5
        torch.testing.assert_close((p.grad * way).sum(), slope, rtol=1e-4, atol=1e-7, msg=name)


@kinds
@pytest.mark.parametrize("output", ["softmax", "entmax"])
def test_bfloat16_autocast(kind, output):
    model, batch = tiny.model(kind, output=output).float(), tiny.batch()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(batch)
        p = stepwise(model, batch)[0]
    loss.backward()
    assert loss.dtype == torch.float32
    assert p.dtype == torch.float32
    torch.testing.assert_close(loss, model.loss(batch), rtol=0.1, atol=0.05)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@kinds
def test_loads_its_state_dict(kind):
    model, other = tiny.model(kind, seed=1), tiny.model(kind, seed=2)
    batch = tiny.batch()
    assert not torch.equal(model.loss(batch), other.loss(batch))
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.loss(batch), model.loss(batch), rtol=0, atol=0)


@kinds
@pytest.mark.parametrize("fields", [{"tied_embeddings": True}, {"shared_embeddings": True}])
def test_tied_embeddings(kind, fields):
    sizes = {"target_vocabulary": 12, **({"embedding": 8} if kind == "lstm" else {})}
    free, tied = tiny.model(kind, **sizes), tiny.model(kind, **sizes, **fields)
    count = {m: sum(p.numel() for p in m.parameters()) for m in (free, tied)}
    assert count[free] - count[tied] == 12 * 8
    check_steps(tied)
    tied.loss(tiny.batch()).backward()


@kinds
def test_dropout_only_in_training(kind):
    model, batch = tiny.model(kind, dropout=0.5), tiny.batch()
    assert torch.equal(model.loss(batch), model.loss(batch))
    model.train()
    assert not torch.equal(model.loss(batch), model.loss(batch))


@kinds
def test_learned_alpha_moves(kind):
    model = tiny.model(kind, **tiny.attention_fields(kind, "entmax:learned"))
    start = {name: alpha.clone() for name, alpha in model.alphas().items()}
    assert all((alpha == 1.5).all() for alpha in start.values())
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    model.loss(tiny.batch()).backward()
    optimizer.step()
    for name, alpha in model.alphas().items():
        assert (alpha != start[name]).all()
        assert ((alpha > 1) & (alpha < 2)).all()


@kinds
def test_fixed_alphas_are_not_listed(kind):
    assert tiny.model(kind).alphas() == {}


@kinds
def test_support_size_of_the_last_batch(kind):
    model, batch = tiny.model(kind), tiny.batch()
    model.loss(batch)
    sizes = (model.probabilities(batch) != 0).sum(-1)[batch.target != PAD]
    assert model.support_size() == pytest.approx(float(sizes.double().mean()))
