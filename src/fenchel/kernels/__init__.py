"""Maths on rows and instances: no autograd, no masks.

``_ops`` says what there is, ``_table`` who runs it; a backend is a folder that registers itself.
"""

from fenchel.kernels import native, reference
from fenchel.kernels._faces import INFEASIBLE, MAX_ITER, SOLVED, STALLED, Faces
from fenchel.kernels._lists import (
    IGNORED,
    Lists,
    check_classes,
    check_list_shapes,
    check_lists,
    join,
    times_matrix,
    transpose,
)
from fenchel.kernels._ops import (
    active_set,
    best_parts,
    face_product,
    k_best_parts,
    run,
    run_groups,
    run_sparse,
    sample_parts,
    smoothed,
    smoothed_product,
)
from fenchel.kernels._plain import (
    has_sizes_only,
    have_memory,
    in_eager_mode,
    is_captured,
    is_plain,
    unwrapped,
)
from fenchel.kernels._table import (
    Backends,
    any_kernel,
    backends,
    find,
    is_known,
    kernel_for,
    use_backend,
)
from fenchel.kernels.reference import pooled, sequence_parts

__all__ = [
    "IGNORED",
    "INFEASIBLE",
    "MAX_ITER",
    "SOLVED",
    "STALLED",
    "Backends",
    "Faces",
    "Lists",
    "active_set",
    "any_kernel",
    "backends",
    "best_parts",
    "check_classes",
    "check_list_shapes",
    "check_lists",
    "face_product",
    "find",
    "has_sizes_only",
    "have_memory",
    "in_eager_mode",
    "is_captured",
    "is_known",
    "is_plain",
    "join",
    "k_best_parts",
    "kernel_for",
    "native",
    "pooled",
    "reference",
    "run",
    "run_groups",
    "run_sparse",
    "sample_parts",
    "sequence_parts",
    "smoothed",
    "smoothed_product",
    "times_matrix",
    "transpose",
    "unwrapped",
    "use_backend",
]
