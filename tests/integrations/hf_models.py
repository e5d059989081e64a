"""Tiny models of Hugging Face, and attention written out to compare with."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor

import fenchel as fy
from fenchel.integrations.transformers import register

WORDS = 40
PAD = 0
_SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2, "pad_token_id": PAD}
_BART = {
    "vocab_size": WORDS,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
    "decoder_start_token_id": PAD,
    "dropout": 0.0,
}
_STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_T5 = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
_WINDOW = {"head_dim": 4, "sliding_window": 4}
_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64}
_GPT2_STILL = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}

MODELS = {
    "bert": ("BertForMaskedLM", "BertConfig", {**_SHAPE, **_STILL}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": WORDS, **_GPT2, **_GPT2_STILL}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_GROUPED, "sliding_window": 4}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**_GROUPED, **_WINDOW}),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", {**_GROUPED, **_WINDOW, **_EXPERTS}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_GROUPED, "num_local_experts": 2}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"vocab_size": WORDS, **_T5}),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART),
    "marian": ("MarianMTModel", "MarianConfig", {**_BART, "eos_token_id": 2}),
}
DECODERS = ("gpt2", "llama", "mistral")
ENCODER_DECODERS = ("t5", "bart")


def build(family: str, attention: str = "entmax15", **options) -> torch.nn.Module:
    """A model with weights large enough for attention to be sparse."""
    register()
    transformers.AttentionInterface.register("written_out", written_out)
    transformers.AttentionMaskInterface.register(
        "written_out", transformers.masking_utils.eager_mask
    )
    model, config, values = MODELS[family]
    if family in ENCODER_DECODERS:
        options.setdefault("decoder_start_token_id", PAD)
    torch.manual_seed(11)
    config = getattr(transformers, config)(**{**values, **options})
    built = getattr(transformers, model)._from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for p in built.parameters():
            if p.dim() > 1:
                p.mul_({"t5": 1.5, "bert": 20.0}.get(family, 6.0))
    return built.eval()


def like(model: torch.nn.Module, family: str, attention: str, **options) -> torch.nn.Module:
    """The same weights with another attention."""
    other = build(family, attention, **options)
    other.load_state_dict(model.state_dict(), strict=False)
    return other


def batch(family: str, padding: str | None = None) -> dict[str, Tensor]:
    """Two sentences, the second with three tokens of padding on one side."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, WORDS, (2, 9), generator=generator)
    inputs = {"input_ids": ids}
    if padding is not None:
        mask = torch.ones_like(ids)
        mask[1, :3] = padding != "left"
        mask[1, -3:] = padding != "right"
        inputs = {"input_ids": ids.where(mask.bool(), PAD), "attention_mask": mask}
    if family in (*ENCODER_DECODERS, "marian"):
        inputs["decoder_input_ids"] = torch.randint(3, WORDS, (2, 6), generator=generator)
    return inputs


def written_out(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    position_bias=None,
    softcap=None,
    **_,
):
    """Attention with all weights, as models write it themselves, with entmax for softmax."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = fy.entmax(scores, module.config.reference_alpha)
    return (weights @ value).transpose(1, 2).contiguous(), weights
