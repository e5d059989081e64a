"""Simplex maps in plain torch: any device, any layout. The definition of correct.

Every function takes floating ``x`` (float32 or float64), a parameter (a Python float, or a tensor
that broadcasts against ``x`` with size 1 along ``dim``) and ``dim``. ``-inf`` is a mask, a fully
masked row is all zeros, and a row with NaN or +inf is all NaN. One file a map.
"""

from fenchel.kernels.reference._alignment import (
    alignment_argmax,
    alignment_max,
    alignment_product,
)
from fenchel.kernels.reference._alignment_paths import (
    alignment_best_parts,
    alignment_k_best,
    alignment_samples,
)
from fenchel.kernels.reference._assignment import assignment_best_parts
from fenchel.kernels.reference._budget import budget
from fenchel.kernels.reference._entmax import entmax
from fenchel.kernels.reference._face_product import face_product
from fenchel.kernels.reference._groups import fusedmax, oscarmax, pooled
from fenchel.kernels.reference._k_subsets import (
    k_subsets_best_parts,
    k_subsets_log_partition,
    k_subsets_tables,
)
from fenchel.kernels.reference._lists import rows_of, times_matrix, transpose
from fenchel.kernels.reference._normmax import normmax
from fenchel.kernels.reference._projective_tree import (
    projective_tree_best_parts,
    projective_tree_log_partition,
)
from fenchel.kernels.reference._renyimax import renyimax
from fenchel.kernels.reference._sequence import sequence_best_parts, sequence_parts
from fenchel.kernels.reference._sequence_dp import (
    sequence_k_best,
    sequence_product,
    sequence_sample,
    sequence_value,
)
from fenchel.kernels.reference._sparse import sparse_entmax
from fenchel.kernels.reference._sq_pnorm_max import sq_pnorm_max
from fenchel.kernels.reference._tree import tree_best_parts, tree_log_partition

__all__ = [
    "alignment_argmax",
    "alignment_best_parts",
    "alignment_k_best",
    "alignment_max",
    "alignment_product",
    "alignment_samples",
    "assignment_best_parts",
    "budget",
    "entmax",
    "face_product",
    "fusedmax",
    "k_subsets_best_parts",
    "k_subsets_log_partition",
    "k_subsets_tables",
    "normmax",
    "oscarmax",
    "pooled",
    "projective_tree_best_parts",
    "projective_tree_log_partition",
    "renyimax",
    "rows_of",
    "sequence_best_parts",
    "sequence_k_best",
    "sequence_parts",
    "sequence_product",
    "sequence_sample",
    "sequence_value",
    "sparse_entmax",
    "sq_pnorm_max",
    "times_matrix",
    "transpose",
    "tree_best_parts",
    "tree_log_partition",
]
