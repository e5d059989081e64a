"""A model, data and a task small enough to train in a test, with dropout to make it random."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fenchel.training import TrainConfig, Trainer

VOCABULARY = 12


@dataclass(frozen=True)
class TinyBatch:
    """Padded rows, and what follows each token."""

    inputs: Tensor
    targets: Tensor
    tokens: int

    def to(self, device):
        return TinyBatch(self.inputs.to(device), self.targets.to(device), self.tokens)


def collate(examples):
    length = max(map(len, examples))
    rows = torch.zeros(len(examples), length, dtype=torch.int64)
    for row, example in zip(rows, examples, strict=True):
        row[: len(example)] = torch.tensor(example)
    return TinyBatch(rows[:, :-1], rows[:, 1:], sum(len(e) - 1 for e in examples))


class TinyModel(nn.Module):
    """Predicts the next token from the last one."""

    def __init__(self, seed=0, dropout=0.2):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(VOCABULARY, 8)
            self.hidden = nn.Linear(8, 8)
            self.output = nn.Linear(8, VOCABULARY)
        self.output.weight = self.embedding.weight  # tied, as sequence models often are
        self.dropout = nn.Dropout(dropout)

    def loss(self, batch):
        scores = self.output(self.dropout(torch.tanh(self.hidden(self.embedding(batch.inputs)))))
        return nn.functional.cross_entropy(
            scores.flatten(0, 1).float(), batch.targets.flatten(), ignore_index=0
        )


def sentences(count=40, seed=0):
    """Sequences in which each token mostly says which one is next."""
    draw = random.Random(seed)
    return [
        [(start + k * step) % (VOCABULARY - 1) + 1 for k in range(draw.randint(3, 9))]
        for start, step in ((draw.randint(0, 10), draw.randint(1, 2)) for _ in range(count))
    ]


def validate(model):
    return {"loss": model.loss(collate(sentences(10, seed=1))).item()}


DEFAULTS: dict[str, Any] = {"batch_size": 8, "max_epochs": 3, "learning_rate": 0.02, "log_every": 2}


def config_with(**changes):
    return TrainConfig(**(DEFAULTS | changes))


def trainer(run_dir, *, model=None, config=None, **arguments):
    """A Trainer of the tiny task; keywords that TrainConfig knows go there, others to Trainer."""
    fields = {k: arguments.pop(k) for k in list(arguments) if k in TrainConfig.__annotations__}
    settings: dict[str, Any] = {
        "collate": collate,
        "validate": validate,
        "length": len,
        "show_progress": False,
    }
    examples = arguments.pop("examples", None)
    return Trainer(
        TinyModel() if model is None else model,
        sentences() if examples is None else examples,
        config_with(**fields) if config is None else config,
        run_dir,
        **(settings | arguments),
    )
