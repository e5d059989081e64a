"""Forward maths on rows of scores: no autograd, no masks. See ``_dispatch`` for who runs what."""

from fenchel.kernels._dispatch import (
    Backends,
    backends,
    choose_backend,
    run,
    run_groups,
    run_sparse,
    use_backend,
)
from fenchel.kernels._lists import Lists, join, times_matrix, transpose
from fenchel.kernels._structures import best_parts
from fenchel.kernels._trees import (
    tree_log_partition,
    tree_log_partition_ops,
    tree_marginals,
    tree_sums,
)

__all__ = [
    "Backends",
    "Lists",
    "backends",
    "best_parts",
    "choose_backend",
    "join",
    "run",
    "run_groups",
    "run_sparse",
    "times_matrix",
    "transpose",
    "tree_log_partition",
    "tree_log_partition_ops",
    "tree_marginals",
    "tree_sums",
    "use_backend",
]
