from __future__ import annotations

from importlib import import_module
from typing import Any

from fenchel._checks import FenchelError
from fenchel.integrations.transformers._alpha import (
    DEFAULT,
    NAME,
    alpha_of,
    attention_modules,
    implementation,
    registered,
    set_alpha,
)
from fenchel.integrations.transformers._attention import attention_function
from fenchel.integrations.transformers._library import transformers
from fenchel.maps.alpha import ALPHA


def register(alpha: float = DEFAULT) -> None:
    r"""Give every model of ``transformers`` three more values of ``attn_implementation``.

    ===============  ===============================================================
    ``"entmax15"``   :math:`\alpha = 1.5`
    ``"sparsemax"``  :math:`\alpha = 2`
    ``"entmax"``     the :math:`\alpha` of :func:`set_alpha`, :class:`AlphaAnnealing` or
                     :func:`learn_alpha`, else ``config.entmax_alpha``, else that given here
    ===============  ===============================================================

    They are to be had as ``"sdpa"`` is: in ``from_pretrained``, ``from_config`` and
    ``model.set_attn_implementation``. Masks are made as for ``"sdpa"``. Whoever may look nowhere,
    as padding on the left, gets zeros. With ``output_attentions=True`` in the call, a model
    returns the weights, dense, before dropout and with gradient; without, they are never dense on
    a CPU. Calling this again is harmless.

    Args:
        alpha: for ``"entmax"`` in models that nothing else tells one.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> from fenchel.integrations.transformers import register
        >>> register()
        >>> tiny = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1)
        >>> config = LlamaConfig(num_attention_heads=2, attn_implementation="sparsemax", **tiny)
        >>> out = LlamaForCausalLM(config)(torch.arange(9)[None], output_attentions=True)
        >>> out.attentions[0].sum(-1).round(decimals=4).unique()
        tensor([1.], grad_fn=<...>)
    """
    registered["alpha"] = ALPHA.number("register", alpha)
    functions = {
        "entmax15": attention_function("entmax15", lambda module: 1.5),
        "sparsemax": attention_function("sparsemax", lambda module: 2.0),
        NAME: attention_function(NAME, alpha_of),
    }
    masks = import_module("transformers.masking_utils").sdpa_mask
    for name, function in functions.items():
        transformers.AttentionInterface.register(name, function)
        transformers.AttentionMaskInterface.register(name, masks)


def use_entmax_attention(model: Any, alpha: float = DEFAULT) -> None:
    r"""Switch a model that exists to entmax attention, in place.

    It is :func:`register`, ``model.set_attn_implementation("entmax")`` and :func:`set_alpha`, and
    it raises where the model would go on with softmax because its attention does not look up the
    registry. What was registered before stays.

    Args:
        model: a ``PreTrainedModel``.
        alpha: a number in (0, ∞]; 1 is softmax, to start annealing from.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from fenchel.integrations.transformers import use_entmax_attention
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2))
        >>> use_entmax_attention(model, alpha=1.5)
        >>> model.config._attn_implementation
        'entmax'
    """
    name = "use_entmax_attention"
    ALPHA.number(name, alpha)
    if not hasattr(model, "set_attn_implementation"):
        raise FenchelError(
            f"{name}: expected `model` to be a PreTrainedModel, but got {type(model).__name__}."
        )
    modules = attention_modules(model)
    if modules:
        if NAME not in transformers.AttentionInterface().valid_keys():
            register()
        model.set_attn_implementation(NAME)
    left = [path for path, module in modules.items() if implementation(module) != NAME]
    if left or not modules:
        said = f"{left[0]!r} does not" if left else "no module does"
        raise FenchelError(
            f"{name}: expected attention of {type(model).__name__} to look up the registry of "
            f"transformers, but {said}."
        )
    set_alpha(model, alpha)
