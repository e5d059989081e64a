"""Forward maths on rows of scores: no autograd, no masks. See ``_dispatch`` for who runs what."""

from fenchel.kernels._dispatch import (
    Backends,
    backends,
    choose_backend,
    run,
    run_sparse,
    use_backend,
)

__all__ = ["Backends", "backends", "choose_backend", "run", "run_sparse", "use_backend"]
