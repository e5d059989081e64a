"""Whether this machine has the memory for something, asked before it is taken."""

from __future__ import annotations

import os

from fenchel._checks import FenchelError


def memory_size() -> int | None:
    """Bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_fits(what: object, size: int) -> None:
    """Refuse what is larger than all memory of this machine."""
    memory = memory_size()
    if memory is not None and size > memory:
        raise FenchelError(
            f"{what}: expected what fits into the {memory / 1e9:.3g} GB of memory of this machine, "
            f"but it takes {size / 1e9:.3g} GB."
        )
