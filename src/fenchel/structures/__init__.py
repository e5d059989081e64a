"""Structures: finite sets of 0/1 vectors, each with an oracle for the best of them."""

from fenchel.structures._alignment import Alignment
from fenchel.structures._assignment import Assignment
from fenchel.structures._dependency_tree import DependencyTree
from fenchel.structures._dtw import dtw, soft_dtw, soft_dtw_divergence
from fenchel.structures._one_of import KSubsets, OneOf
from fenchel.structures._segmentation import Segmentation, SegmentScores
from fenchel.structures._sequence import Sequence, SequenceScores
from fenchel.structures._structure import Structure

__all__ = [
    "Alignment",
    "Assignment",
    "DependencyTree",
    "KSubsets",
    "OneOf",
    "SegmentScores",
    "Segmentation",
    "Sequence",
    "SequenceScores",
    "Structure",
    "dtw",
    "soft_dtw",
    "soft_dtw_divergence",
]
