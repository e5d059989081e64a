"""Sparse attention, sparse losses and sparse sampling for the models of Hugging Face.

:func:`register` makes ``attn_implementation="entmax15"``, ``"sparsemax"`` and ``"entmax"`` known to
every model of ``transformers``, and :func:`use_entmax_attention` switches one that exists.
:func:`set_alpha`, :class:`AlphaAnnealing` and :func:`learn_alpha` say how sparse.
:func:`use_entmax_loss` replaces a language model's loss, without its logits in training;
:func:`entmax_lm_loss` is the loss of logits, where there are some. :class:`EntmaxLogitsProcessor`
samples from entmax in ``generate``.

What models pass to an attention function and how it is taken here:

- masks, boolean or added, in which the least number of a dtype means "never"; no mask and a causal
  module: query i sees keys 0 to i; padding on the left gets zeros;
- fewer heads of keys than of queries; ``dropout`` in training only; ``scaling``;
- ``position_bias`` is added to the scores; ``softcap`` bends them before the mask; ``s_aux`` is the
  score of one more key a head whose value is zero. The last two make the weights dense;
- a sliding window must be in the mask, else it is an error; so are ``head_mask``, packed sequences
  for FlashAttention (``cu_seq_lens_q``), paged caches and indices of sparse attention;
- an argument that is not known is left out, with a warning.
"""

from fenchel.integrations.transformers._alpha import (
    AlphaAnnealing,
    get_alpha,
    learn_alpha,
    set_alpha,
)
from fenchel.integrations.transformers._logits_processor import EntmaxLogitsProcessor
from fenchel.integrations.transformers._loss import (
    EntmaxLossHandle,
    entmax_lm_loss,
    use_entmax_loss,
)
from fenchel.integrations.transformers._register import register, use_entmax_attention

__all__ = [
    "AlphaAnnealing",
    "EntmaxLogitsProcessor",
    "EntmaxLossHandle",
    "entmax_lm_loss",
    "get_alpha",
    "learn_alpha",
    "register",
    "set_alpha",
    "use_entmax_attention",
    "use_entmax_loss",
]
