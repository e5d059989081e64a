"""Does it learn? Tiny strings to be reversed, in a few seconds."""

from __future__ import annotations

import pytest
import torch

from fenchel.models import BOS, EOS, Batch, Seq2Seq, build_model, model_config
from tests.models import tiny

VOCABULARY = 10  # six letters


def pairs(count: int, rng: torch.Generator) -> list[tuple[list[int], list[int]]]:
    found = []
    for _ in range(count):
        length = int(torch.randint(2, 5, (), generator=rng))
        letters = torch.randint(4, VOCABULARY, (length,), generator=rng).tolist()
        found.append((letters, letters[::-1]))
    return found


def greedy(model: Seq2Seq, batch: Batch) -> list[list[int]]:
    state = model.start(batch.source, batch.source_lengths)
    tokens = torch.full((batch.source.shape[0],), BOS)
    columns = []
    for _ in range(8):
        step = model.step(state, tokens)
        tokens, state = step.probabilities.argmax(-1), step.state
        columns.append(tokens)
    rows = torch.stack(columns, 1).tolist()
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]


SETTINGS = {
    "lstm": {"embedding": 24, "hidden": 32, "layers": 1, "dropout": 0.0},
    "transformer": {"width": 32, "heads": 4, "layers": 1, "feedforward": 64, "dropout": 0.0},
}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("lstm", {}),
        ("lstm", {"output": "softmax", "attention": "softmax", "input_feeding": False}),
        ("lstm", {"output": "sparsemax", "attention": "fusedmax:0.01"}),
        ("transformer", tiny.attention_fields("transformer", "entmax:learned")),
    ],
    ids=str,
)
def test_learns_to_reverse(kind, fields, rng):
    torch.manual_seed(0)
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY}
    model = build_model(model_config(kind, **sizes, **{**SETTINGS[kind], **fields}))
    optimizer = torch.optim.Adam(model.parameters(), 0.01 if kind == "lstm" else 0.004)
    steps = 150 if kind == "lstm" else 250
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] *= 0.985 if step > steps // 2 else 1.0
        optimizer.zero_grad()
        model.loss(Batch.collate(pairs(48, rng))).backward()
        optimizer.step()
    model.eval()
    held_out = pairs(200, rng)
    found = greedy(model, Batch.collate(held_out))
    right = sum(a == target for a, (_, target) in zip(found, held_out, strict=True))
    assert right / len(held_out) > 0.95
    sizes_of_support = model.support_size()
    assert (sizes_of_support < 2) == (fields.get("output") != "softmax")
