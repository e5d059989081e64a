"""Generation: caches, padding, and sampling from entmax."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel.integrations.transformers import EntmaxLogitsProcessor
from tests.integrations.hf_models import DECODERS, ENCODER_DECODERS, PAD, WORDS, batch, build

GREEDY = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": PAD}


def prompts(family: str, padding: str | None = "left") -> dict[str, torch.Tensor]:
    inputs = batch(family, padding)
    inputs.pop("decoder_input_ids", None)
    return inputs


@pytest.mark.parametrize("family", [*DECODERS, "gemma2", "gpt_oss", *ENCODER_DECODERS, "marian"])
def test_cache_changes_nothing(family):
    model, inputs = build(family), prompts(family)
    found = [
        model.generate(
            **inputs, **GREEDY, use_cache=cached, output_logits=True, return_dict_in_generate=True
        )
        for cached in (True, False)
    ]
    assert torch.equal(found[0].sequences, found[1].sequences)
    for ours, theirs in zip(found[0].logits, found[1].logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_static_cache_changes_nothing():
    model, inputs = build("llama"), prompts("llama")
    usual = model.generate(**inputs, **GREEDY)
    static = model.generate(**inputs, **GREEDY, cache_implementation="static", disable_compile=True)
    assert torch.equal(usual, static)


def test_several_tokens_after_a_cache_are_causal_behind_it():
    model, tokens = build("llama"), batch("llama")["input_ids"]
    expected = model(tokens).logits
    first = model(tokens[:, :4], use_cache=True)
    rest = model(tokens[:, 4:], past_key_values=first.past_key_values).logits
    torch.testing.assert_close(rest, expected[:, 4:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", DECODERS)
def test_left_padding_changes_nothing(family):
    model, inputs = build(family), prompts(family)
    together = model.generate(**inputs, **GREEDY)
    alone = model.generate(inputs["input_ids"][1:, 3:], **GREEDY)
    assert torch.equal(together[1:, 3:], alone)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0, math.inf])
def test_processor_gives_log_probabilities_with_an_exact_support(alpha, rng):
    scores = 3 * torch.randn(4, WORDS, generator=rng)
    scores[0, 5] = -math.inf
    found = EntmaxLogitsProcessor(alpha)(None, scores)
    p = fy.entmax(scores, alpha)
    torch.testing.assert_close(found.exp(), p)
    torch.testing.assert_close(found.softmax(-1), p)  # which is what generate samples from
    assert torch.equal(found == -math.inf, p == 0)
    assert torch.equal(found.argmax(-1), scores.argmax(-1))
    torch.testing.assert_close(EntmaxLogitsProcessor(alpha)(None, scores - 7).exp(), p)


def test_softmax_keeps_what_would_underflow():
    found = EntmaxLogitsProcessor(1)(None, torch.tensor([[0.0, -500.0]]))
    assert found.tolist() == [[0.0, -500.0]]


def test_sampling_draws_from_the_support_and_as_often_as_entmax_says():
    model = build("llama").eval()
    prompt = batch("llama")["input_ids"][:1]
    with torch.no_grad():
        p = fy.entmax(model(prompt).logits[0, -1] / 2, 1.5)
    assert 2 < (p > 0).sum() < WORDS
    with torch.no_grad():
        model.lm_head.weight /= 2
    torch.manual_seed(0)
    drawn = model.generate(
        prompt.expand(4000, -1),
        max_new_tokens=1,
        do_sample=True,
        top_k=0,
        logits_processor=[EntmaxLogitsProcessor(1.5)],
        eos_token_id=None,
        pad_token_id=PAD,
    )[:, -1]
    counts = torch.bincount(drawn, minlength=WORDS) / 4000
    assert (counts[p == 0] == 0).all()
    # Five standard deviations of a mean of 4000 draws: 5 · 0.5 / √4000.
    torch.testing.assert_close(counts, p, atol=0.04, rtol=0)


def test_every_sampled_token_is_in_the_support_of_its_step():
    model, inputs = build("llama"), prompts("llama")
    options = {**GREEDY, "do_sample": True, "top_k": 0, "return_dict_in_generate": True}
    out = model.generate(
        **inputs,
        **options,
        output_scores=True,
        output_logits=True,
        logits_processor=[EntmaxLogitsProcessor(1.5)],
    )
    for step, (scores, logits) in enumerate(zip(out.scores, out.logits, strict=True)):
        p = fy.entmax(logits, 1.5)
        torch.testing.assert_close(scores.exp(), p)
        drawn = out.sequences[:, inputs["input_ids"].shape[1] + step]
        assert (p.gather(1, drawn[:, None]) > 0).all()


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_beams_add_log_probabilities_of_entmax(family):
    model, inputs = build(family), prompts(family, None)
    options = {**GREEDY, "num_beams": 3, "length_penalty": 0.0, "return_dict_in_generate": True}
    processors = [EntmaxLogitsProcessor(1.5)]
    out = model.generate(**inputs, **options, output_scores=True, logits_processor=processors)
    steps = model.compute_transition_scores(
        out.sequences, out.scores, out.beam_indices, normalize_logits=False
    )
    assert out.sequences_scores.isfinite().all()
    if family == "llama":
        text = out.sequences
        logits = model(text).logits[:, -7:-1]
        log_p = fy.entmax(logits, 1.5).log()
        expected = log_p.gather(-1, text[:, -6:, None]).sum((1, 2))
        # Logits without the cache differ in float32, and small probabilities magnify it in logs.
        torch.testing.assert_close(out.sequences_scores, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(steps.sum(1), out.sequences_scores, atol=0.0, rtol=1e-4)


def test_greedy_is_as_before():
    model, inputs = build("llama"), prompts("llama")
    found = model.generate(**inputs, **GREEDY, logits_processor=[EntmaxLogitsProcessor()])
    assert torch.equal(found, model.generate(**inputs, **GREEDY))


def test_processor_says_what_it_is_and_refuses_an_alpha_of_zero():
    assert repr(EntmaxLogitsProcessor(2)) == "EntmaxLogitsProcessor(alpha=2.0)"
    with pytest.raises(
        fy.FenchelError, match=r"EntmaxLogitsProcessor: `alpha` must be above 0 .* got 0\."
    ):
        EntmaxLogitsProcessor(0)
