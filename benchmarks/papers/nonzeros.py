"""How many entries of attention and output get a probability above 0, given the right prefix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fenchel.models import PAD, Batch, Seq2Seq
from fenchel.tasks import Example, Task

ROWS = 64  # examples that are looked at together


@torch.no_grad()
def count_nonzeros(model: Seq2Seq, task: Task, examples: Sequence[Example]) -> dict[str, Any]:
    """Means over all target tokens (source tokens, for the encoder's attention to itself).

    Returns:
        ``token_accuracy``: how often the likeliest token is the right one; ``target_words``:
        tokens with probability; ``attended``: source tokens with weight, the mean over heads and
        layers; ``available``: source tokens there are; ``density``: for each kind of attention,
        the share of the keys a query may see that get weight, by layer and head.
    """
    model.eval()
    sums: Counter[str] = Counter()
    densities: dict[str, Tensor] = {}
    for start in range(0, len(examples), ROWS):
        batch = Batch.collate([task.pair(example) for example in examples[start : start + ROWS]])
        real = batch.target != PAD
        p = model.probabilities(batch)[real]
        gold = batch.target[real]
        sums["tokens"] += len(gold)
        sums["right"] += int((p.argmax(-1) == gold).sum())
        sums["words"] += int((p > 0).sum())
        visible = _visible(batch)
        for kind, weights in model.attention_maps(batch).items():
            rows = visible[kind].any(-1)
            share = (weights > 0).sum(-1) / visible[kind].sum(-1).clamp(min=1)[:, None]
            total = (share * rows[:, None]).sum((1, 3))
            densities[kind] = densities.get(kind, 0) + total.double()
            sums[f"{kind} rows"] += int(rows.sum())
            if kind == "cross":
                count = ((weights > 0).sum(-1) * rows[:, None]).double().mean((0, 2))
                sums["attended"] += float(count.sum())
                sums["available"] += int(visible[kind].sum())
    tokens = sums["tokens"]
    return {
        "token_accuracy": sums["right"] / tokens,
        "target_words": sums["words"] / tokens,
        "attended": sums["attended"] / tokens,
        "available": sums["available"] / tokens,
        "density": {
            kind: (total / sums[f"{kind} rows"]).tolist() for kind, total in densities.items()
        },
    }


def _visible(batch: Batch) -> dict[str, Tensor]:
    """(B, L, S) for each kind of attention: the keys that each query may look at."""
    places = torch.arange(batch.source.shape[1])
    source = places < batch.source_lengths[:, None]
    target = batch.target != PAD
    causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    return {
        "encoder": source[:, :, None] & source[:, None],
        "decoder": target[:, :, None] & causal,
        "cross": target[:, :, None] & source[:, None],
    }
