"""The maps and losses as modules. One file a module, of the name of its function."""

from fenchel.nn._budget import Budget
from fenchel.nn._entmax import Entmax
from fenchel.nn._entmax15 import Entmax15
from fenchel.nn._fusedmax import Fusedmax
from fenchel.nn._linear_chain import LinearChain
from fenchel.nn._linear_entmax_loss import LinearEntmaxLoss
from fenchel.nn._losses import Entmax15Loss, EntmaxLoss, FenchelYoungLoss, SparsemaxLoss
from fenchel.nn._multihead_attention import MultiheadAttention
from fenchel.nn._normmax import Normmax
from fenchel.nn._oscarmax import Oscarmax
from fenchel.nn._renyimax import Renyimax
from fenchel.nn._softmax import Softmax
from fenchel.nn._sparsemax import Sparsemax
from fenchel.nn._sq_pnorm_max import SqPnormMax
from fenchel.nn._structured_layer import (
    AlignmentLayer,
    MatchingLayer,
    StructuredLayer,
    TreeLayer,
)
from fenchel.nn._vocab_parallel_entmax_loss import VocabParallelEntmaxLoss

__all__ = [
    "AlignmentLayer",
    "Budget",
    "Entmax",
    "Entmax15",
    "Entmax15Loss",
    "EntmaxLoss",
    "FenchelYoungLoss",
    "Fusedmax",
    "LinearChain",
    "LinearEntmaxLoss",
    "MatchingLayer",
    "MultiheadAttention",
    "Normmax",
    "Oscarmax",
    "Renyimax",
    "Softmax",
    "Sparsemax",
    "SparsemaxLoss",
    "SqPnormMax",
    "StructuredLayer",
    "TreeLayer",
    "VocabParallelEntmaxLoss",
]
