"""The maps, losses and structures as modules."""

from fenchel.nn import _maps
from fenchel.nn._linear_chain import LinearChain
from fenchel.nn._linear_entmax_loss import LinearEntmaxLoss
from fenchel.nn._losses import Entmax15Loss, EntmaxLoss, FenchelYoungLoss, SparsemaxLoss
from fenchel.nn._maps import *  # noqa: F403  (what a new map adds is public at once)
from fenchel.nn._multihead_attention import MultiheadAttention
from fenchel.nn._structured_layer import (
    AlignmentLayer,
    MatchingLayer,
    StructuredLayer,
    TreeLayer,
)
from fenchel.nn._vocab_parallel_entmax_loss import VocabParallelEntmaxLoss
from fenchel.nn.normalizers import normalizer

__all__ = [
    "AlignmentLayer",
    "Entmax15Loss",
    "EntmaxLoss",
    "FenchelYoungLoss",
    "LinearChain",
    "LinearEntmaxLoss",
    "MatchingLayer",
    "MultiheadAttention",
    "SparsemaxLoss",
    "StructuredLayer",
    "TreeLayer",
    "VocabParallelEntmaxLoss",
    "normalizer",
]
__all__ += _maps.__all__
