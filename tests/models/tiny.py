"""Models small enough that a test of all their choices takes a second."""

from __future__ import annotations

from typing import Any

import torch

from fenchel.models import NORMALIZERS, Batch, Seq2Seq, build_model, model_config

SMALL: dict[str, dict[str, Any]] = {
    "lstm": {"embedding": 6, "hidden": 8, "layers": 2},
    "transformer": {"width": 8, "heads": 2, "layers": 2, "feedforward": 12},
}
KINDS = tuple(SMALL)
SIZES = {"source_vocabulary": 12, "target_vocabulary": 11}
SPECS = (
    *(name for name in NORMALIZERS if name not in ("structured", "entmax15")),
    "entmax:1.3",
    "entmax:learned",
    "fusedmax:0.05",
    "oscarmax:0.05",
)
PAIRS = [
    ([5, 6, 7], [7, 6, 5]),
    ([5, 4, 4, 9, 7], [7]),
    ([11], [3, 10, 4, 4, 8]),
]


def config(kind: str, **fields: Any) -> Any:
    return model_config(kind, **{**SIZES, **SMALL[kind], **fields})


def model(kind: str, seed: int = 0, **fields: Any) -> Seq2Seq:
    """A model in float64, for evaluation."""
    torch.manual_seed(seed)
    built = build_model(config(kind, **fields)).double().eval()
    with torch.no_grad():
        for p in built.parameters():
            if p.dim() > 1:
                p.mul_(3)  # further from uniform, so that supports differ
    return built


def attention_fields(kind: str, spec: str) -> dict[str, str]:
    """The fields that give every attention of a model the normalizer ``spec``."""
    if kind == "lstm":
        return {"attention": spec}
    return {f"{part}_attention": spec for part in ("encoder", "decoder", "cross")}


def batch() -> Batch:
    return Batch.collate(PAIRS)
