"""Looking at what sparse models do."""

from fenchel.analysis._plot_attention import plot_attention
from fenchel.analysis._plot_beam import plot_beam

__all__ = ["plot_attention", "plot_beam"]
