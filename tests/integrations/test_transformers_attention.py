"""Entmax attention in models of Hugging Face: the same as with all weights written out."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import fenchel as fy
from fenchel.integrations.transformers import set_alpha, use_entmax_attention
from fenchel.integrations.transformers._attention import attention_function
from tests.integrations.hf_models import DECODERS, ENCODER_DECODERS, batch, build, like

FAMILIES = ("bert", *DECODERS, "gemma2", *ENCODER_DECODERS)
NAMES = {"entmax15": 1.5, "sparsemax": 2.0, "entmax": 1.3}
TOLERANCE = {"atol": 2e-5, "rtol": 1e-4}


def seen(logits: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits of what is not padding."""
    if "attention_mask" not in inputs or "decoder_input_ids" in inputs:
        return logits
    return logits[inputs["attention_mask"].bool()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_and_gradients_are_those_of_all_weights_written_out(family, name, backend):
    model = build(family, name, entmax_alpha=1.3)
    other = like(model, family, "written_out", reference_alpha=NAMES[name])
    for padding in (None, "right"):
        inputs = batch(family, padding)
        ours, theirs = (seen(m(**inputs).logits, inputs) for m in (model, other))
        torch.testing.assert_close(ours, theirs, **TOLERANCE)
    for logits in (ours, theirs):
        logits.square().mean().backward()
    # float32 through whole layers, whose sums are taken in another order.
    scale = max(p.grad.abs().max().item() for p in other.parameters())
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, atol=1e-5 * scale, rtol=1e-3)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", [*FAMILIES, "gpt_oss"])
def test_alpha_one_is_softmax(family, attention):
    if family in ("gemma2", "gpt_oss") and attention == "sdpa":
        attention = "eager"  # sdpa has no softcap and no sinks
    model = build(family, "entmax", entmax_alpha=1.0)
    other = like(model, family, attention)
    inputs = batch(family, "left" if family in DECODERS else "right")
    ours, theirs = (seen(m(**inputs).logits, inputs) for m in (model, other))
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    set_alpha(model, 2)
    assert (seen(model(**inputs).logits, inputs) - theirs).abs().max() > 1e-2


@pytest.mark.parametrize("family", DECODERS)
def test_left_padding_changes_nothing(family):
    model, inputs = build(family), batch(family, "left")
    positions = (inputs["attention_mask"].cumsum(1) - 1).clamp_min(0)
    padded = model(**inputs, position_ids=positions).logits
    assert padded.isfinite().all()
    alone = model(inputs["input_ids"][1:, 3:]).logits
    torch.testing.assert_close(padded[1:, 3:], alone, **TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_with_padding_is_each_sentence_alone(family):
    model, inputs = build(family), batch(family, "right")
    together = model(**inputs).logits
    alone = {"input_ids": inputs["input_ids"][1:, :6]}
    if "decoder_input_ids" in inputs:
        alone["decoder_input_ids"] = inputs["decoder_input_ids"][1:]
    expected = model(**alone).logits
    torch.testing.assert_close(together[1:, :6], expected, **TOLERANCE)


def test_rows_that_may_look_nowhere_have_finite_gradients():
    model, inputs = build("llama").train(), batch("llama", "left")
    out = model(**inputs, output_attentions=True)
    assert (out.attentions[0][1, :, :3] == 0).all()
    out.logits.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("family", [*FAMILIES, "gpt_oss"])
def test_weights_are_returned_when_asked_for(family):
    model, inputs = build(family), batch(family)
    plain, out = model(**inputs), model(**inputs, output_attentions=True)
    torch.testing.assert_close(out.logits, plain.logits, **TOLERANCE)
    keys = [key for key in out if key.endswith("attentions") and out[key]]
    assert keys == (
        ["decoder_attentions", "cross_attentions", "encoder_attentions"]
        if family in ENCODER_DECODERS
        else ["attentions"]
    )
    for weights in (w for key in keys for w in out[key]):
        assert weights.shape[:2] == (2, 4)
        if family != "gpt_oss":  # a sink takes the rest
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert 0.1 < (out[keys[0]][0] == 0).float().mean() < 1
    assert not any(key.endswith("attentions") for key in plain)


def test_weights_are_those_before_dropout():
    model = build("llama", attention_dropout=0.5).train()
    weights = model(**batch("llama"), output_attentions=True).attentions[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_dropout_acts_in_training_alone():
    model, inputs = build("llama", attention_dropout=0.5), batch("llama")
    still = model(**inputs).logits
    assert torch.equal(still, model(**inputs).logits)
    model.train()
    assert (model(**inputs).logits - still).abs().max() > 1e-2
    assert (model(**inputs, output_attentions=True).logits - still).abs().max() > 1e-2


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_bfloat16_by_autocast_and_throughout(family):
    model, inputs = build(family), batch(family, "right")
    expected = seen(model(**inputs).logits, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        cast = model.train()(**inputs).logits
    assert cast.dtype == torch.bfloat16
    cast.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    half = model.eval().bfloat16()(**inputs).logits
    for found in (cast, half):
        error = (seen(found, inputs).float() - expected).norm() / expected.norm()
        assert error < 0.1


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")  # 5.23 on
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_gradient_checkpointing_changes_no_gradient(family, reentrant):
    model, inputs = build(family).train(), batch(family, "right")
    gradients = []
    for _ in range(2):
        model.zero_grad()
        model(**inputs, use_cache=False).logits.square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
        options = {"use_reentrant": reentrant}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second)


def test_compile_gives_one_graph_that_alpha_does_not_break():
    model = build("llama", "entmax", entmax_alpha=1.5, num_hidden_layers=1)
    set_alpha(model, 1.5)
    inputs = batch("llama", "left")
    counts = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counts)
    for alpha in (1.5, 1.2):
        set_alpha(model, alpha)
        with torch.no_grad():
            found = compiled(**inputs, use_cache=False).logits
            torch.testing.assert_close(found, model(**inputs).logits, **TOLERANCE)
    assert counts.frame_count == 1


def test_a_sentence_learned_by_heart():
    model = build("llama").train()
    use_entmax_attention(model)
    tokens = batch("llama")["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_sinks_are_one_more_key_without_a_value():
    torch.manual_seed(0)
    module = torch.nn.Identity()
    query, key, value = (torch.randn(2, 3, 5, 4) for _ in range(3))
    sinks = torch.tensor([0.5, -1.0, 2.0])
    attend = attention_function("entmax15", lambda _: 1.5)
    out, weights = attend(
        module, query, key, value, None, 0.5, is_causal=False, s_aux=sinks, output_attentions=True
    )
    scores = torch.cat([query @ key.mT * 0.5, sinks[:, None, None].expand(2, 3, 5, 1)], -1)
    expected = fy.entmax(scores, 1.5)[..., :-1]
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(out, (expected @ value).transpose(1, 2))
    assert (weights.sum(-1) < 0.999).any()
