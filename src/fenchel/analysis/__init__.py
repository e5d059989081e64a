"""Looking at what sparse models do."""

from fenchel.analysis._plot_attention import plot_attention

__all__ = ["plot_attention"]
