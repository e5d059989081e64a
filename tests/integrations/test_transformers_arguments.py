"""What models hand to an attention function: taken, refused or warned about, never ignored."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel.integrations.transformers import get_alpha, register, use_entmax_attention
from fenchel.integrations.transformers._attention import attention_function
from tests.integrations.hf_models import batch, build

attend = attention_function("entmax15", lambda _: 1.5)


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return 2 * torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 6)


def layer(is_causal: bool = False, training: bool = False) -> torch.nn.Module:
    module = torch.nn.Identity().train(training)
    module.is_causal = is_causal
    return module


def test_least_numbers_in_a_mask_mean_never(qkv):
    boolean = torch.rand(2, 1, 5, 7) > 0.5
    boolean[0, 0, 2] = False
    expected = attend(layer(), *qkv, boolean)[0]
    assert (expected[0, 2] == 0).all() and (expected[0, 1] != 0).any()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        added = torch.where(boolean, 0.0, torch.finfo(dtype).min).to(dtype)
        assert torch.equal(attend(layer(), *qkv, added)[0], expected)
    cast = torch.where(boolean, 0.0, torch.finfo(torch.bfloat16).min)  # float32
    assert torch.equal(attend(layer(), *qkv, cast)[0], expected)


def test_a_mask_longer_than_the_keys_is_cut(qkv):
    mask = torch.rand(2, 1, 5, 12) > 0.5
    assert torch.equal(attend(layer(), *qkv, mask)[0], attend(layer(), *qkv, mask[..., :7])[0])


def test_causal_without_a_mask_starts_at_the_first_key(qkv):
    query, key, value = qkv
    expected = attend(layer(), query, key[:, :, :5], value[:, :, :5], triangle(5, 5))[0]
    assert torch.allclose(attend(layer(is_causal=True), *qkv, None)[0], expected, atol=1e-6)
    assert torch.allclose(attend(layer(), *qkv, None, is_causal=True)[0], expected, atol=1e-6)
    free = attend(layer(is_causal=True), *qkv, None, is_causal=False)[0]
    assert torch.equal(free, attend(layer(), *qkv, None)[0])
    one = (query[:, :, :1], key, value)  # a step with a cache sees everything
    seen = attend(layer(is_causal=True), *one, None)[0]
    torch.testing.assert_close(seen, free[:, :1])


def triangle(queries: int, keys: int) -> torch.Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril()[None, None]


@pytest.mark.parametrize("mask", ["none", "boolean", "added", "causal"])
def test_position_bias_is_added(qkv, mask):
    bias = torch.randn(1, 4, 5, 7, requires_grad=True)
    seen = triangle(5, 7).expand(2, 1, 5, 7)
    given = {"boolean": seen, "added": torch.where(seen, 0.0, -math.inf)}.get(mask)
    module = layer(is_causal=mask == "causal")
    out, _ = attend(module, *qkv, given, scaling=0.3, position_bias=bias)
    query, key, value = qkv
    scores = 0.3 * query @ key.repeat_interleave(2, 1).mT + bias
    if mask != "none":
        scores = scores.masked_fill(~seen, -math.inf)
    expected = (fy.entmax(scores) @ value.repeat_interleave(2, 1)).transpose(1, 2)
    torch.testing.assert_close(out, expected)
    (gradient,) = torch.autograd.grad(out.square().sum(), bias, retain_graph=True)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), bias)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-5, rtol=1e-4)


def test_softcap_bends_scores_before_the_mask(qkv):
    query, key, value = qkv
    scores = 3 * torch.tanh(query @ key.repeat_interleave(2, 1).mT / 3)
    scores = scores.masked_fill(~triangle(5, 7), -math.inf)
    expected = (fy.entmax(scores) @ value.repeat_interleave(2, 1)).transpose(1, 2)
    out, weights = attend(layer(True), *qkv, None, scaling=1.0, softcap=3.0)
    torch.testing.assert_close(out, expected)
    assert weights is None


def test_scaling_may_be_a_tensor(qkv):
    scaled = attend(layer(), *qkv, None, scaling=torch.tensor(0.7))[0]
    torch.testing.assert_close(scaled, attend(layer(), *qkv, None, scaling=0.7)[0])
    default = attend(layer(), *qkv, None)[0]
    torch.testing.assert_close(default, attend(layer(), *qkv, None, scaling=8**-0.5)[0])


def test_sliding_window_must_be_in_the_mask(qkv):
    with pytest.raises(
        fy.FenchelError,
        match=r"entmax15: expected a mask that holds the sliding window of 4 over 7 keys, but got "
        r"none\.",
    ):
        attend(layer(), *qkv, None, sliding_window=4)
    assert attend(layer(), *qkv, None, sliding_window=7)[0].isfinite().all()


def test_a_mask_of_other_dimensions_is_refused(qkv):
    with pytest.raises(
        fy.FenchelError,
        match=r"entmax15: expected an attention mask of shape \(batch, heads, queries, keys\), but "
        r"got \(2, 7\)\.",
    ):
        attend(layer(), *qkv, torch.ones(2, 7, dtype=torch.bool))


@pytest.mark.parametrize("label", ["head_mask", "cu_seq_lens_q", "cache", "indices"])
def test_what_cannot_be_done_is_refused(qkv, label):
    assert attend(layer(), *qkv, None, **{label: None})[0].isfinite().all()
    with pytest.raises(fy.FenchelError, match=rf"entmax15: expected no `{label}` in attention, "):
        attend(layer(), *qkv, None, **{label: torch.ones(1)})


def test_what_is_not_known_is_warned_about_once(qkv):
    with pytest.warns(UserWarning, match="attention got `shoe_size`, which it does not know"):
        attend(layer(), *qkv, None, shoe_size=43)
    attend(layer(), *qkv, None, shoe_size=43)


def test_a_model_without_the_registry_is_refused():
    import transformers

    config = transformers.BloomConfig(vocab_size=9, hidden_size=8, n_layer=1, n_head=2)
    with pytest.raises(
        fy.FenchelError,
        match=r"use_entmax_attention: expected attention of BloomModel to look up the registry of "
        r"transformers, but no module does\.",
    ):
        use_entmax_attention(transformers.BloomModel(config))
    with pytest.raises(fy.FenchelError, match="expected `model` to be a PreTrainedModel, but got "):
        use_entmax_attention(torch.nn.Linear(2, 2))


def test_registered_alpha_is_that_of_models_without_one():
    model, other, inputs = build("llama", "entmax"), build("llama", "sdpa"), batch("llama")
    default = model(**inputs).logits
    try:
        register(alpha=2.0)
        ours = model(**inputs).logits
        use_entmax_attention(other)  # registers nothing anew
        assert torch.equal(model(**inputs).logits, ours)
        assert set(get_alpha(model).values()) == {2.0}
    finally:
        register()
    model.set_attn_implementation("sparsemax")
    assert torch.equal(ours, model(**inputs).logits)
    model.set_attn_implementation("entmax15")
    assert torch.equal(default, model(**inputs).logits)
    with pytest.raises(fy.FenchelError, match="register: `alpha` must be above 0"):
        register(alpha=0.0)
