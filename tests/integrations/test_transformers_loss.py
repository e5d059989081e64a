"""The entmax loss of language models: with logits, and without."""

from __future__ import annotations

import copy
from functools import partial
from types import MethodType

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from fenchel.integrations.transformers import entmax_lm_loss, use_entmax_loss
from tests.integrations.hf_models import WORDS, batch, build

SHIFTED = ("gpt2", "llama", "mixtral")
FAMILIES = (*SHIFTED, "bert", "t5", "bart", "marian")


def labelled(family: str) -> dict[str, torch.Tensor]:
    inputs = batch(family, "right")
    target = inputs.pop("decoder_input_ids", inputs["input_ids"])
    labels = target.clone()
    labels[1, -3:] = -100
    labels[0, 2] = -100
    return {**inputs, "labels": labels}


def expected_loss(model, family: str, alpha: float = 1.5, **options) -> torch.Tensor:
    """From logits in full, which the model computes without labels."""
    inputs = labelled(family)
    labels = inputs.pop("labels")
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
    logits = model(**inputs).logits
    if family in SHIFTED:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return fy.entmax_loss(logits.reshape(-1, WORDS), labels.reshape(-1), alpha, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_are_those_of_full_logits(family):
    model = build(family).train()
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias += torch.linspace(-1, 1, WORDS)
    expected = expected_loss(model, family)
    expected.backward()
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad.clone() for p in parameters]
    model.zero_grad()
    use_entmax_loss(model, 1.5)
    out = model(**labelled(family))
    assert out.logits is None and "logits" not in out
    torch.testing.assert_close(out.loss, expected, atol=1e-5, rtol=1e-5)
    out.loss.backward()
    # float32 through whole layers, whose sums are taken in another order.
    scale = max(g.abs().max().item() for g in gradients)
    for p, gradient in zip(parameters, gradients, strict=True):
        torch.testing.assert_close(p.grad, gradient, atol=1e-5 * scale, rtol=1e-3)


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_alpha_one_is_the_models_own_loss(family):
    model, inputs = build(family).train(), labelled(family)
    own = model(**inputs).loss
    handle = use_entmax_loss(model, 1)
    torch.testing.assert_close(model(**inputs).loss, own)
    handle.alpha = 2.0
    torch.testing.assert_close(model(**inputs).loss, expected_loss(model, family, 2.0))
    handle.remove()
    assert torch.equal(model(**inputs).loss, own)
    assert model(**inputs).logits is not None
    handle.remove()  # a second time does nothing


def test_removal_leaves_no_trace_and_respects_what_was_wrapped_around():
    model, inputs = build("llama").train(), labelled("llama")
    own, before = model(**inputs).loss, set(vars(model))
    use_entmax_loss(model).remove()
    assert set(vars(model)) == before and not model.lm_head._forward_pre_hooks
    handle = use_entmax_loss(model)
    inner, calls = model.forward.__func__, []

    def outer(self, *args, **kwargs):
        calls.append(1)
        return inner(self, *args, **kwargs)

    model.forward = MethodType(outer, model)
    assert model(**inputs).logits is None
    handle.remove()
    assert torch.equal(model(**inputs).loss, own) and len(calls) == 2
    use_entmax_loss(model, 1)
    torch.testing.assert_close(model(**inputs).loss, own)


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_logits_are_there_when_asked_for(family):
    model, inputs = build(family), labelled(family)
    use_entmax_loss(model)
    full = model(**inputs)
    assert list(full)[:2] == ["loss", "logits"]
    bare = model(**inputs, return_logits=False)
    assert bare.logits is None
    torch.testing.assert_close(bare.loss, full.loss)
    trained = model.train()(**inputs, return_logits=True)
    torch.testing.assert_close(trained.logits, full.logits)
    loss, logits, *_ = model.eval()(**inputs, return_dict=False)
    assert torch.equal(loss, full.loss) and torch.equal(logits, full.logits)


def test_without_labels_nothing_changes():
    model, inputs = build("llama").train(), batch("llama")
    before = model(**inputs)
    use_entmax_loss(model)
    after = model(**inputs)
    assert torch.equal(before.logits, after.logits)
    assert after.loss is None and after.past_key_values is not None
    assert model(**labelled("llama")).past_key_values is None
    assert model(**labelled("llama"), use_cache=True).past_key_values is not None


def test_positional_labels_and_shifted_labels():
    model, inputs = build("gpt2").train(), labelled("gpt2")
    use_entmax_loss(model)
    expected = model(**inputs).loss
    labels = inputs.pop("labels")
    shifted = F.pad(labels[:, 1:], (0, 1), value=-100)
    torch.testing.assert_close(model(**inputs, shift_labels=shifted).loss, expected)
    llama = build("llama").train()
    use_entmax_loss(llama)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    named = llama(ids, attention_mask=mask, labels=labels).loss
    assert torch.equal(llama(ids, mask, None, None, None, labels).loss, named)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("items", [int, torch.tensor])
def test_accumulated_steps_are_one_large_one(fused, items):
    model, inputs = build("llama").train(), labelled("llama")
    use_entmax_loss(model, fused=fused)
    whole = model(**inputs).loss
    count = items(int((inputs["labels"][:, 1:] != -100).sum()))
    parts = [
        model(**{key: x[i : i + 1] for key, x in inputs.items()}, num_items_in_batch=count).loss
        for i in range(2)
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_label_smoothing_and_shift_have_an_effect():
    model, inputs = build("llama").train(), labelled("llama")
    for fused in (True, False):
        use_entmax_loss(model, fused=fused, label_smoothing=0.1)
        smooth = model(**inputs).loss
        torch.testing.assert_close(smooth, expected_loss(model, "llama", label_smoothing=0.1))
        use_entmax_loss(model, fused=fused, shift=False)
        labels = inputs["labels"].reshape(-1)
        logits = model(**inputs, return_logits=True).logits.reshape(-1, WORDS)
        torch.testing.assert_close(model(**inputs).loss, fy.entmax_loss(logits, labels))


def test_learned_alpha_has_a_gradient():
    model = build("llama").train()
    alpha = torch.tensor([1.5], requires_grad=True)
    use_entmax_loss(model, alpha)
    model(**labelled("llama")).loss.backward()
    assert alpha.grad.isfinite().all() and alpha.grad != 0


def test_a_softcap_after_the_head_is_refused_and_has_a_way_out():
    model, inputs = build("gemma2").train(), labelled("llama")
    use_entmax_loss(model)
    with pytest.raises(
        fy.FenchelError,
        match=r"use_entmax_loss: expected the logits of Gemma2ForCausalLM to be what its head "
        r"computes, but it changes them afterwards \(a softcap, a scale\); use fused=False\.",
    ):
        model(**inputs)
    use_entmax_loss(model, fused=False)
    out = model(**inputs)
    labels = inputs.pop("labels")[:, 1:].reshape(-1)
    logits = model(**inputs).logits[:, :-1].reshape(-1, WORDS)
    torch.testing.assert_close(out.loss, fy.entmax_loss(logits, labels))
    assert out.logits is None


def test_experts_keep_their_auxiliary_loss():
    model, inputs = build("mixtral", output_router_logits=True).train(), labelled("mixtral")
    own = model(**inputs).loss
    use_entmax_loss(model, 1)
    out = model(**inputs)
    assert out.aux_loss > 0
    torch.testing.assert_close(out.loss, own)


def test_a_copied_model_keeps_its_own_loss_to_itself():
    model, inputs = build("llama").train(), labelled("llama")
    handle = use_entmax_loss(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.lm_head.weight.zero_()
    handle.alpha = 2.0
    zero = fy.entmax_loss(torch.zeros(1, WORDS), torch.tensor([0]), 1.5)
    torch.testing.assert_close(twin(**inputs).loss, zero)
    torch.testing.assert_close(model(**inputs).loss, expected_loss(model, "llama", 2.0))


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")  # 5.23 on
def test_bfloat16_by_autocast_and_checkpointing():
    model, inputs = build("llama").train(), labelled("llama")
    use_entmax_loss(model)
    expected = model(**inputs).loss
    model.gradient_checkpointing_enable()
    torch.testing.assert_close(model(**inputs).loss, expected)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**inputs).loss
    assert loss.dtype == torch.float32
    assert abs(loss - expected) < 0.05 * expected
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_loss_function_of_logits(family):
    model, inputs = build(family).train(), labelled(family)
    expected = expected_loss(model, family, 1.7)
    model.loss_function = partial(entmax_lm_loss, alpha=1.7)
    out = model(**inputs)
    torch.testing.assert_close(out.loss, expected)
    assert out.logits is not None
    whole = out.loss * (inputs["labels"][:, 1:] != -100).sum()
    torch.testing.assert_close(model(**inputs, num_items_in_batch=5).loss, whole / 5)


def test_loss_function_without_shift():
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[0, 1, 9], [2, 9, 4]])
    found = entmax_lm_loss(logits.bfloat16(), labels, ignore_index=9, shift=False, alpha=2)
    rows = logits.bfloat16().float().reshape(-1, 5)
    expected = fy.entmax_loss(rows, labels.reshape(-1), 2, ignore_index=9)
    torch.testing.assert_close(found, expected)


def test_errors():
    with pytest.raises(fy.FenchelError, match="expected `model` to be a PreTrainedModel, but got "):
        use_entmax_loss(torch.nn.Linear(2, 2))
    with pytest.raises(fy.FenchelError, match=r"use_entmax_loss: `alpha` must be above 0 "):
        use_entmax_loss(build("llama"), 0.0)
    model = build("llama")
    model.lm_head = torch.nn.Sequential(model.lm_head)
    with pytest.raises(fy.FenchelError, match=r"but it is Sequential; use fused=False\."):
        use_entmax_loss(model)
