"""Losses in the place of ``F.cross_entropy``. One file a loss."""

from fenchel.losses._cross_entropy_shape import check_reduction, check_smoothing
from fenchel.losses._entmax15_loss import entmax15_loss
from fenchel.losses._entmax_loss import entmax_loss
from fenchel.losses._fenchel_young import fenchel_young_loss
from fenchel.losses._linear_entmax_loss import linear_entmax_loss
from fenchel.losses._linear_sparse_entmax import linear_sparse_entmax
from fenchel.losses._sparsemax_loss import sparsemax_loss
from fenchel.losses._vocab_parallel_entmax_loss import vocab_parallel_entmax_loss

__all__ = [
    "check_reduction",
    "check_smoothing",
    "entmax15_loss",
    "entmax_loss",
    "fenchel_young_loss",
    "linear_entmax_loss",
    "linear_sparse_entmax",
    "sparsemax_loss",
    "vocab_parallel_entmax_loss",
]
