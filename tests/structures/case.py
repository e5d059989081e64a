"""How the tests of a structure declare the instances that drive the shared tests.

A file ``test_<structure>.py`` in this folder has, beside what is true of its structure alone:

- ``CASES``: small batches, with lengths and masks: structures, regularizers, losses;
- ``SOLVED``: somewhat larger ones, whose members can still be listed: SparseMAP's solver;
- ``FACES``: one instance of a usual size for each kind of oracle in the C++ core: its active set;
- ``REFUSED``: two instances of zeros, with the sentence that says what a target is: errors.

``registry.py`` collects them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fenchel as fy
from fenchel.testing._cases import StructureCase, blocks


def case(
    name: str,
    structure: fy.Structure,
    *shapes: Any,
    form: Any = None,
    scale: float = 1.0,
    **rest: Any,
) -> StructureCase:
    """A case of random scores: one shape, or those of the blocks of a form (None: not there)."""
    rng = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    drawn = [
        shape and scale * torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes
    ]
    return StructureCase(name, structure, drawn[0] if form is None else form(*drawn), **rest)


def forbid(x: StructureCase, block: int, *places: tuple[int, ...]) -> StructureCase:
    """The case with -inf at places of a block of its scores."""
    for place in places:
        blocks(x.scores)[block][place] = -torch.inf
    return x


def mask(*shape: int, off: list[tuple[int, ...]]) -> Tensor:
    """True, but for some places."""
    made = torch.ones(shape, dtype=torch.bool)
    for place in off:
        made[place] = False
    return made


@dataclass(frozen=True)
class Refused:
    """Scores (two instances) of a structure, and the sentence about targets of the wrong type.

    ``target`` follows "expected `target`" and precedes ", but got"; ``shape`` is that of a target
    of integers, or None if there are other forms.
    """

    structure: fy.Structure
    scores: Tensor
    target: str
    shape: tuple[int, ...] | None

    def __repr__(self) -> str:
        return repr(self.structure)


OMEGAS = (fy.MAP, fy.Marginals, fy.SparseMAP, lambda s: fy.SmoothedDP(s, "l2"))


def regularizers(structure):
    """Every Ω that a structure has."""
    for make in OMEGAS:
        try:
            yield make(structure)
        except fy.FenchelError:
            continue


def refuses(sentence, call, *args, **kwargs):
    """That a call raises exactly this sentence."""
    with pytest.raises(fy.FenchelError) as error:
        call(*args, **kwargs)
    assert str(error.value) == sentence
