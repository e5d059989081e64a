"""Losses instead of ``F.cross_entropy``: alone, or with their output layer."""

from fenchel.losses._entmax_losses import entmax15_loss, entmax_loss, sparsemax_loss
from fenchel.losses._fenchel_young import fenchel_young_loss
from fenchel.losses._linear_entmax_loss import linear_entmax_loss
from fenchel.losses._linear_sparse_entmax import linear_sparse_entmax
from fenchel.losses._vocab_parallel_entmax_loss import vocab_parallel_entmax_loss

__all__ = [
    "entmax15_loss",
    "entmax_loss",
    "fenchel_young_loss",
    "linear_entmax_loss",
    "linear_sparse_entmax",
    "sparsemax_loss",
    "vocab_parallel_entmax_loss",
]
