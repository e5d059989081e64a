from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Ids of the special tokens: padding, start of a target, its end, and an unknown token."""


@dataclass(frozen=True)
class Batch:
    """Sources and targets of a few examples, padded to one length.

    Attributes:
        source: (B, S) int64, padded with ``PAD``.
        source_lengths: (B,) int64, how many tokens of each source count; may stay on the CPU.
        target: (B, T) int64: tokens, then ``EOS``, padded with ``PAD``. There is no ``BOS``: the
            decoder reads ``BOS`` and then all of the target but its last token.

    Example:
        >>> from fenchel.models import Batch
        >>> batch = Batch.collate([([5, 6], [7]), ([5], [8, 9])])
        >>> batch.source
        tensor([[5, 6],
                [5, 0]])
        >>> batch.target
        tensor([[7, 2, 0],
                [8, 9, 2]])
        >>> batch.tokens
        5
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor

    def to(self, device: Any) -> Batch:
        """The batch on another device; lengths stay where they are, read by the CPU."""
        return Batch(self.source.to(device), self.source_lengths, self.target.to(device))

    @property
    def tokens(self) -> int:
        """Number of target tokens that count: all but padding."""
        return int((self.target != PAD).sum())

    @property
    def decoder_input(self) -> Tensor:
        """(B, T): ``BOS`` and the target without its last token."""
        first = torch.full_like(self.target[:, :1], BOS)
        return torch.cat([first, self.target[:, :-1]], 1)

    @staticmethod
    def collate(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
        """Pad pairs of sources and targets, and end each target with ``EOS``.

        Args:
            pairs: sources and targets as lists of token ids, without ``BOS`` and ``EOS``; a target
                may be empty.
        """
        if len(pairs) == 0:
            raise FenchelError("Batch.collate: expected at least one pair, but got none.")
        for i, (source, _) in enumerate(pairs):
            if len(source) == 0:
                raise FenchelError(
                    f"Batch.collate: expected sources of at least one token, but the source of "
                    f"pair {i} is empty."
                )
        sources = [list(source) for source, _ in pairs]
        targets = [[*target, EOS] for _, target in pairs]
        lengths = torch.tensor([len(source) for source in sources])
        return Batch(_pad(sources), lengths, _pad(targets))


def _pad(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], dtype=torch.int64)


def check_source(name: str, source: Any, lengths: Any, vocabulary: int) -> None:
    """Check (B, S) sources and their lengths; values only where reading them makes none wait."""
    _check_ids(name, "source", source, 2, vocabulary)
    if source.shape[0] == 0:
        raise FenchelError(f"{name}: expected `source` of at least one row, but it has none.")
    if not isinstance(lengths, Tensor) or lengths.dtype != torch.int64:
        got = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise FenchelError(
            f"{name}: expected `source_lengths` to be an int64 tensor, but got {got}."
        )
    if lengths.shape != source.shape[:1]:
        raise FenchelError(
            f"{name}: expected one of `source_lengths` for each of {source.shape[0]} sources, but "
            f"got shape {tuple(lengths.shape)}."
        )
    if lengths.device.type == "cpu":
        low, high = (int(x) for x in lengths.aminmax())
        if low < 1 or high > source.shape[1]:
            raise FenchelError(
                f"{name}: expected `source_lengths` from 1 to {source.shape[1]}, the width of "
                f"`source`, but got {low if low < 1 else high}."
            )


def check_target(name: str, target: Any, batch: int, vocabulary: int) -> None:
    """Check (B, T) targets: tokens of the vocabulary, and no ``BOS``, which is never predicted."""
    _check_ids(name, "target", target, 2, vocabulary)
    if target.shape[0] != batch:
        raise FenchelError(
            f"{name}: expected as many targets as sources, {batch}, but got {target.shape[0]}."
        )
    if target.device.type == "cpu":
        if bool((target == BOS).any()):
            raise FenchelError(
                f"{name}: expected `target` without BOS ({BOS}); the decoder puts it in front."
            )
        if not bool((target != PAD).any()):
            raise FenchelError(f"{name}: expected a target token that is not PAD, but all are.")


def check_tokens(name: str, tokens: Any, rows: int, vocabulary: int) -> None:
    """Check the (n,) tokens that a step reads."""
    _check_ids(name, "tokens", tokens, 1, vocabulary)
    if tokens.shape[0] != rows:
        raise FenchelError(
            f"{name}: expected one of `tokens` for each of the state's {rows} rows, but got "
            f"{tokens.shape[0]}."
        )


def _check_ids(name: str, label: str, ids: Any, rank: int, vocabulary: int) -> None:
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.dim() != rank:
        got = f"{ids.dtype}, {ids.dim()}-d" if isinstance(ids, Tensor) else type(ids).__name__
        raise FenchelError(
            f"{name}: expected `{label}` to be an int64 tensor of {rank} dimension"
            f"{'s' if rank > 1 else ''}, but got {got}."
        )
    if 0 in ids.shape[1:]:
        raise FenchelError(f"{name}: expected `{label}` of at least one token, but it is empty.")
    if ids.device.type == "cpu" and ids.numel():
        low, high = (int(x) for x in ids.aminmax())
        if low < 0 or high >= vocabulary:
            raise FenchelError(
                f"{name}: expected ids in `{label}` from 0 to {vocabulary - 1}, as the vocabulary "
                f"has {vocabulary}, but got {low if low < 0 else high}."
            )


def check_vocabulary(name: str, label: str, size: Any) -> None:
    """Check that a vocabulary has a token beside the special ones."""
    if check_int(name, label, size) <= UNK:
        raise FenchelError(
            f"{name}: expected `{label}` of at least {UNK + 1}, the special tokens and a token, "
            f"but got {size}."
        )
