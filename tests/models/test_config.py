from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from fenchel import FenchelError
from fenchel.models import (
    NORMALIZERS,
    LSTMConfig,
    LSTMSeq2Seq,
    TransformerConfig,
    TransformerSeq2Seq,
    build_model,
    model_config,
)
from tests.models import tiny

CONFIGS = {"lstm": LSTMConfig, "transformer": TransformerConfig}
kinds = pytest.mark.parametrize("kind", tiny.KINDS)

# Another value for each field, and the fields without which it would not matter or be refused.
COMMON = {
    "source_vocabulary": (13, {}),
    "target_vocabulary": (13, {}),
    "output": ("softmax", {}),
    "layers": (1, {}),
    "shared_embeddings": (True, {"target_vocabulary": 12}),
    "dropout": (0.6, {}),
    "label_smoothing": (0.1, {}),
}
OTHER = {
    "lstm": {
        **COMMON,
        "embedding": (7, {}),
        "hidden": (10, {}),
        "bidirectional": (False, {}),
        "attention": ("softmax", {}),
        "attention_score": ("dot", {}),
        "input_feeding": (False, {}),
        "tied_embeddings": (True, {"embedding": 8}),
    },
    "transformer": {
        **COMMON,
        "width": (12, {}),
        "heads": (4, {}),
        "feedforward": (9, {}),
        "norm": ("post", {}),
        "positions": ("learned", {}),
        "max_length": (9, {"positions": "learned"}),
        "encoder_attention": ("softmax", {}),
        "decoder_attention": ("softmax", {}),
        "cross_attention": ("softmax", {}),
        "tied_embeddings": (True, {}),
        "attention_dropout": (0.6, {}),
    },
}


@kinds
def test_every_field_is_tested_and_explained(kind):
    fields = dataclasses.fields(CONFIGS[kind])
    assert {field.name for field in fields} - {"kind"} == OTHER[kind].keys()
    assert all(len(field.metadata["help"]) > 10 for field in fields)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in tiny.KINDS for name in OTHER[kind]]
)
def test_every_field_changes_something(kind, name):
    value, also = OTHER[kind][name]

    def outcome(**fields):
        model = tiny.model(kind, **also, **fields).train()
        torch.manual_seed(1)
        loss = model.loss(tiny.batch())
        return [p.shape for p in model.parameters()], loss.detach().item()

    assert outcome() == outcome()
    assert outcome(**{name: value}) != outcome()


@kinds
def test_survives_json(kind):
    config = tiny.config(kind, dropout=0.25, output="entmax:1.3")
    assert model_config(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_builds_by_kind():
    assert isinstance(build_model(tiny.config("lstm")), LSTMSeq2Seq)
    assert isinstance(build_model(tiny.config("transformer")), TransformerSeq2Seq)
    assert model_config("lstm", layers=3) == LSTMConfig(layers=3)
    assert build_model(tiny.config("lstm")).config == tiny.config("lstm")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("lstm", {"layers": 0}, "LSTMConfig: expected `layers` of at least 1, but got 0."),
        ("lstm", {"hidden": "8"}, "LSTMConfig: expected `hidden` to be an int, but got '8'."),
        ("lstm", {"dropout": 1.0}, "LSTMConfig: expected `dropout` below 1, but got 1.0."),
        (
            "lstm",
            {"dropout": -0.1},
            "LSTMConfig: `dropout` must be at least 0 (0 is none); got -0.1.",
        ),
        (
            "lstm",
            {"label_smoothing": "x"},
            "LSTMConfig: expected `label_smoothing` to be a number, but got str.",
        ),
        (
            "lstm",
            {"input_feeding": 1},
            "LSTMConfig: expected `input_feeding` to be a bool, but got 1.",
        ),
        (
            "lstm",
            {"attention_score": "concat"},
            "LSTMConfig: expected `attention_score` to be one of general, dot, mlp, but got "
            "'concat'.",
        ),
        (
            "lstm",
            {"hidden": 7},
            "LSTMConfig: expected an even `hidden` for a bidirectional encoder, half for each "
            "direction, but got 7.",
        ),
        (
            "lstm",
            {"tied_embeddings": True},
            "LSTMConfig: expected `embedding` equal to `hidden` with `tied_embeddings`, but got 6 "
            "and 8.",
        ),
        (
            "lstm",
            {"shared_embeddings": True},
            "LSTMConfig: expected vocabularies of one size with `shared_embeddings`, but got 12 "
            "and 11.",
        ),
        (
            "lstm",
            {"source_vocabulary": 3},
            "LSTMConfig: expected `source_vocabulary` of at least 4, the special tokens and a "
            "token, but got 3.",
        ),
        (
            "lstm",
            {"attention": "softmin"},
            f"normalizer: expected one of {', '.join(NORMALIZERS)}, maybe with a parameter after a "
            "colon, but got 'softmin'.",
        ),
        (
            "lstm",
            {"output": "fusedmax"},
            "output: expected 'softmax', 'sparsemax', 'entmax' or 'entmax:1.3' with a number of "
            "at least 1, but got 'fusedmax'.",
        ),
        (
            "transformer",
            {"heads": 3},
            "TransformerConfig: expected `heads` that divides `width`, but got 3 and 8.",
        ),
        (
            "transformer",
            {"width": 9, "heads": 3},
            "TransformerConfig: expected an even `width` for sinusoidal positions, but got 9.",
        ),
        (
            "transformer",
            {"norm": "none"},
            "TransformerConfig: expected `norm` to be one of pre, post, but got 'none'.",
        ),
        (
            "transformer",
            {"hidden": 5, "nhead": 2},
            "model_config: expected fields of TransformerConfig (kind, source_vocabulary, "
            "target_vocabulary, width, heads, layers, feedforward, norm, positions, max_length, "
            "encoder_attention, decoder_attention, cross_attention, output, tied_embeddings, "
            "shared_embeddings, dropout, attention_dropout, label_smoothing), but got 'hidden', "
            "'nhead'.",
        ),
    ],
)
def test_refuses(kind, fields, message):
    with pytest.raises(FenchelError) as caught:
        tiny.config(kind, **fields)
    assert str(caught.value) == message


@pytest.mark.parametrize("values", [{"kind": None}, {"kind": "gru"}, {"kind": ["lstm"]}], ids=str)
def test_refuses_unknown_kinds(values):
    with pytest.raises(FenchelError) as caught:
        model_config(**values)
    assert str(caught.value) == (
        f"model_config: expected `kind` to be one of lstm, transformer, but got {values['kind']!r}."
    )


@kinds
def test_a_config_says_its_own_kind(kind):
    with pytest.raises(FenchelError, match=f"expected `kind` to be '{kind}', but got 'other'"):
        CONFIGS[kind](kind="other")


@kinds
def test_vocabularies_must_be_known_to_build(kind):
    config = CONFIGS[kind]()
    with pytest.raises(FenchelError, match="expected `source_vocabulary` of at least 4"):
        build_model(config)


def test_build_refuses_other_things():
    with pytest.raises(FenchelError) as caught:
        build_model({"kind": "lstm"})
    assert str(caught.value) == (
        "build_model: expected LSTMConfig or TransformerConfig, but got dict."
    )
