from __future__ import annotations

import warnings
from contextlib import suppress

import torch

from fenchel._checks import FenchelError


def check_device(name: str) -> str:
    """Refuse, before a model is read, a device on which this torch cannot compute a number."""
    with warnings.catch_warnings(), suppress(Exception):  # torch raises what it likes
        warnings.simplefilter("ignore")
        if float(torch.ones(1, device=name)) == 1:
            return name
    known = ["cpu"]
    known += ["cuda"] if torch.cuda.is_available() else []
    known += ["mps"] if torch.backends.mps.is_available() else []
    raise FenchelError(
        f"--device: expected a device that torch can compute on here ({', '.join(known)}), but got "
        f"{name!r}."
    )
