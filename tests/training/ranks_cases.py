"""Runs that one process and several must train alike, by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from fenchel.models import Batch, build_model, model_config
from fenchel.training import TrainConfig, Trainer, TrainResult

VOCABULARY = 13  # odd: no two ranks have equal shares
SIZES: dict[str, dict[str, Any]] = {
    "lstm": {"embedding": 8, "hidden": 8, "layers": 1},
    "transformer": {"width": 8, "heads": 2, "feedforward": 16, "layers": 2},
}
LEARNED = {f"{kind}_attention": "entmax:learned" for kind in ("encoder", "decoder", "cross")}
Case = tuple[str, dict[str, Any], dict[str, Any]]  # kind, fields of the model, of the training

CASES: dict[str, Case] = {
    "lstm": ("lstm", {"attention": "entmax:learned"}, {}),
    "lstm, tied": ("lstm", {"tied_embeddings": True, "shared_embeddings": True}, {}),
    "transformer": ("transformer", LEARNED, {"optimizer": "adamw", "weight_decay": 0.1}),
    "transformer, no clipping": ("transformer", {"label_smoothing": 0.1}, {"clip_norm": None}),
    "one sentence a batch": ("transformer", {}, {"batch_unit": "sentences", "batch_size": 1}),
}


def pairs(count: int = 24) -> list[tuple[list[int], list[int]]]:
    """Words and their reverse, of very different lengths: a mean of means would be another."""
    draw = random.Random(0)
    words = [
        [draw.randint(4, VOCABULARY - 1) for _ in range(draw.randint(1, 7))] for _ in range(count)
    ]
    return [(word, word[::-1]) for word in words]


def trainer(
    name: str,
    run_dir: Path,
    dtype: torch.dtype = torch.float64,
    *,
    dropout: float = 0.0,
    collate: Any = Batch.collate,
    **fields: Any,
) -> Trainer:
    """The run ``name``; ``fields`` are more of its TrainConfig."""
    kind, model_fields, train_fields = CASES[name]
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "dropout": dropout}
    config = model_config(kind, **sizes, **SIZES[kind], **model_fields)
    torch.manual_seed(3)
    defaults = {"batch_unit": "tokens", "batch_size": 60, "max_epochs": 3, "log_every": 1}
    every = {**defaults, "learning_rate": 0.01, "threads": 1, **train_fields, **fields}
    data = pairs()
    return Trainer(
        build_model(config).to(dtype),
        data,
        TrainConfig(**every),
        run_dir,
        collate=collate,
        validate=lambda model: {"loss": model.loss(Batch.collate(data)).item()},
        show_progress=False,
    )


def train(name: str, run_dir: Path, *arguments: Any, resume: bool = False, **fields: Any) -> TrainResult:
    """Train it to its end."""
    return trainer(name, run_dir, *arguments, **fields).run(resume=resume)
