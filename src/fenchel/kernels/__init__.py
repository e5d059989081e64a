"""Forward maths on rows of scores: no autograd, no masks. See ``_dispatch`` for who runs what."""

from fenchel.kernels._alignment import alignment_product, alignment_smoothed
from fenchel.kernels._dispatch import (
    Backends,
    backends,
    choose_backend,
    run,
    run_groups,
    run_sparse,
    use_backend,
)
from fenchel.kernels._door import (
    has_sizes_only,
    have_memory,
    in_eager_mode,
    is_captured,
    is_plain,
    unwrapped,
)
from fenchel.kernels._faces import Faces
from fenchel.kernels._indices import IGNORED, check_classes, check_list_shapes, check_lists
from fenchel.kernels._lists import Lists, join, times_matrix, transpose
from fenchel.kernels._sequence import (
    sequence_k_best,
    sequence_product,
    sequence_sample,
    sequence_smoothed,
)
from fenchel.kernels._structures import active_set, best_parts, face_product
from fenchel.kernels._trees import (
    tree_log_partition,
    tree_log_partition_ops,
    tree_marginals,
    tree_sums,
)

__all__ = [
    "IGNORED",
    "Backends",
    "Faces",
    "Lists",
    "active_set",
    "alignment_product",
    "alignment_smoothed",
    "backends",
    "best_parts",
    "check_classes",
    "check_list_shapes",
    "check_lists",
    "choose_backend",
    "face_product",
    "has_sizes_only",
    "have_memory",
    "in_eager_mode",
    "is_captured",
    "is_plain",
    "join",
    "run",
    "run_groups",
    "run_sparse",
    "sequence_k_best",
    "sequence_product",
    "sequence_sample",
    "sequence_smoothed",
    "times_matrix",
    "transpose",
    "tree_log_partition",
    "tree_log_partition_ops",
    "tree_marginals",
    "tree_sums",
    "unwrapped",
    "use_backend",
]
