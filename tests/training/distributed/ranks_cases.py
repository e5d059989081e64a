"""Runs that one process and several must train alike, by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from fenchel.decoding import beam_search
from fenchel.models import Batch, build_model, model_config
from fenchel.training import TrainConfig, Trainer

VOCABULARY = 13  # odd: no two ranks have equal shares
SIZES: dict[str, dict[str, Any]] = {
    "lstm": {"embedding": 8, "hidden": 8, "layers": 1},
    "transformer": {"width": 8, "heads": 2, "feedforward": 16, "layers": 2},
}
LEARNED = {f"{kind}_attention": "entmax:learned" for kind in ("encoder", "decoder", "cross")}
Case = tuple[str, dict[str, Any], dict[str, Any]]  # kind, fields of the model, of the training

# Those that are also trained in float32; all are in float64.
SINGLE = ("lstm", "transformer", "fsdp", "vocabulary", "vocabulary, softmax")
CASES: dict[str, Case] = {
    "lstm": ("lstm", {"attention": "entmax:learned"}, {}),
    "lstm, tied": ("lstm", {"tied_embeddings": True, "shared_embeddings": True}, {}),
    "transformer": ("transformer", LEARNED, {"optimizer": "adamw", "weight_decay": 0.1}),
    "transformer, no clipping": ("transformer", {"label_smoothing": 0.1}, {"clip_norm": None}),
    "fsdp": ("transformer", LEARNED, {"parallel": "fsdp"}),
    "fsdp, tied": (
        "transformer",
        {"tied_embeddings": True, "shared_embeddings": True, "positions": "learned"},
        {"parallel": "fsdp", "clip_norm": 0.1},
    ),
    "vocabulary": ("transformer", {}, {"vocabulary_parallel": True, "clip_norm": 0.1}),
    "vocabulary, softmax": ("lstm", {"output": "softmax"}, {"vocabulary_parallel": True}),
    "vocabulary, smoothed": (
        "transformer",
        {"output": "sparsemax", "label_smoothing": 0.1},
        {"vocabulary_parallel": True},
    ),
    "fsdp, vocabulary": (
        "transformer",
        {"shared_embeddings": True},
        {"parallel": "fsdp", "vocabulary_parallel": True, "clip_norm": 0.1},
    ),
    "fsdp, one sentence a batch": (
        "transformer",
        {},
        {"batch_unit": "sentences", "batch_size": 1, "max_steps": 3, "parallel": "fsdp"},
    ),
    "one sentence a batch": (
        "transformer",
        {},
        {"batch_unit": "sentences", "batch_size": 1, "max_steps": 6},
    ),
    "one sentence a batch, vocabulary": (
        "lstm",
        {},
        {"batch_unit": "sentences", "batch_size": 1, "max_steps": 6, "vocabulary_parallel": True},
    ),
}


def pairs(count: int = 24) -> list[tuple[list[int], list[int]]]:
    """Words and their reverse, of very different lengths: a mean of means would be another."""
    draw = random.Random(0)
    words = [
        [draw.randint(4, VOCABULARY - 1) for _ in range(draw.randint(1, 7))] for _ in range(count)
    ]
    return [(word, word[::-1]) for word in words]


def validate(model: Any) -> dict[str, float]:
    """The loss of all pairs, and how likely the best answers are that a search finds."""
    data = pairs()
    batch = Batch.collate(data[:3])
    found = beam_search(model, batch.source, batch.source_lengths, beam=2, max_length=5)
    answers = sum(result.best.log_probability for result in found)
    return {"loss": model.loss(Batch.collate(data)).item(), "answers": answers}


def trainer(
    name: str,
    run_dir: Path,
    dtype: torch.dtype = torch.float64,
    *,
    dropout: float = 0.0,
    **more: Any,
) -> Trainer:
    """The run ``name``; what TrainConfig knows goes there, all else to Trainer."""
    kind, model_fields, train_fields = CASES[name]
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "dropout": dropout}
    config = model_config(kind, **sizes, **SIZES[kind], **model_fields)
    defaults = {"batch_unit": "tokens", "batch_size": 60, "max_epochs": 3, "log_every": 1}
    fields = {k: more.pop(k) for k in list(more) if k in TrainConfig.__annotations__}
    fields = {**defaults, "learning_rate": 0.01, "threads": 1, **train_fields, **fields}
    torch.manual_seed(3)
    model = build_model(config).to(dtype)
    examples = more.pop("examples", pairs())
    calls = {"collate": Batch.collate, "validate": validate, "show_progress": False, **more}
    return Trainer(model, examples, TrainConfig(**fields), run_dir, **calls)


def folder_of(name: str, dtype: torch.dtype) -> str:
    """Of the run ``name``."""
    return f"{name}, {dtype}".replace(" ", "-")
