"""Looking at what sparse models do."""

from fenchel.analysis._plot_attention import plot_attention
from fenchel.analysis._plot_beam import plot_beam
from fenchel.analysis._plot_structures import plot_alignment, plot_matching, plot_sequence
from fenchel.analysis._plot_trees import plot_trees

__all__ = [
    "plot_alignment",
    "plot_attention",
    "plot_beam",
    "plot_matching",
    "plot_sequence",
    "plot_trees",
]
