"""The alpha of a model's attention: fixed, annealed or learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from fenchel._checks import FenchelError, check_alpha
from fenchel.integrations.transformers._modules import entmax_modules
from fenchel.maps.bounds import Bounds

_KEY = "entmax_alpha"  # of a config, and of an attention module
_MEANING = "(1 is softmax, 2 is sparsemax)"
DEFAULT = 1.5
registered = {"alpha": DEFAULT}  # for models that nothing else tells one


class LearnedAlpha(Module):
    """One alpha per head between two bounds."""

    def __init__(self, heads: int, start: float, bounds: Bounds, like: Tensor) -> None:
        super().__init__()
        self.bounds = bounds
        logit = torch.full((heads,), start, device=like.device)
        self.alpha_logit = Parameter(logit)  # float32 in a model of bfloat16 too

    def forward(self) -> Tensor:
        """The present alphas, shape (heads,), with gradient."""
        return self.bounds.alpha(self.alpha_logit)


def alpha_of(module: Module) -> float | Tensor:
    """What was set on the module, else in its config, else what was registered."""
    held = getattr(module, _KEY, None)
    if isinstance(held, LearnedAlpha):
        return held()
    if isinstance(held, Tensor):
        return held
    written = getattr(getattr(module, "config", None), _KEY, None)
    return registered["alpha"] if written is None else written


def set_alpha(model: Module, alpha: float) -> None:
    r"""Set the :math:`\alpha` of a model's attention, or of a part of it.

    1 is softmax, 2 is sparsemax. The model's implementation must be ``"entmax"``, the one that
    reads an :math:`\alpha`; ``"entmax15"`` and ``"sparsemax"`` have theirs in the name.

    Args:
        model: a model, whose config then has it as ``entmax_alpha``, so that ``save_pretrained``
            keeps it; or any module inside, such as one layer, of which it is not saved.
        alpha: a number in (0, ∞]. One that was learned until now is replaced.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> from fenchel.integrations.transformers import set_alpha, use_entmax_attention
        >>> tiny = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=2)
        >>> model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **tiny))
        >>> use_entmax_attention(model, alpha=1.0)
        >>> set_alpha(model, 1.25)
        >>> model.config.entmax_alpha
        1.25
    """
    number = check_alpha("set_alpha", alpha, _MEANING)
    modules = entmax_modules("set_alpha", model)
    for module in modules.values():
        held = getattr(module, _KEY, None)
        if isinstance(held, Tensor):
            held.fill_(number)  # the same tensor: torch.compile need not compile again
            continue
        if held is not None:
            delattr(module, _KEY)
        setattr(module, _KEY, torch.tensor(number))
    if hasattr(model, "save_pretrained"):
        for config in _configs(model, modules):
            setattr(config, _KEY, number)


def get_alpha(model: Module) -> dict[str, float | list[float]]:
    r"""The :math:`\alpha` of every attention module, by name: a number, or one a head if learned.

    Args:
        model: a model whose implementation is ``"entmax"``.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from fenchel.integrations.transformers import get_alpha, use_entmax_attention
        >>> tiny = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1)
        >>> model = BertModel(BertConfig(num_attention_heads=2, **tiny))
        >>> use_entmax_attention(model, alpha=2)
        >>> get_alpha(model)
        {'encoder.layer.0.attention.self': 2.0}
    """
    found: dict[str, float | list[float]] = {}
    for name, module in entmax_modules("get_alpha", model).items():
        alpha = alpha_of(module)
        found[name] = alpha.tolist() if isinstance(alpha, Tensor) else float(alpha)
    return found


def learn_alpha(
    model: Module, alpha: float = 1.5, low: float = 1.0, high: float = 2.0
) -> list[Parameter]:
    r"""Make :math:`\alpha` a parameter of every attention head, between two bounds.

    .. math:: \alpha = \mathit{low} + (\mathit{high} - \mathit{low}) \, \sigma(a)

    The parameters are in the model's ``state_dict`` (as ``…entmax_alpha.alpha_logit``), so call
    this before making the optimizer. ``from_pretrained`` does not know them: build the model, call
    this, and load the ``state_dict``.

    Args:
        model: a model whose implementation is ``"entmax"``, or a part of it.
        alpha: where every head starts, strictly between the bounds.
        low: lower bound, above 0.
        high: upper bound, finite.

    Returns:
        The parameters :math:`a`, one a layer of shape (heads,), for a group of the optimizer.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from fenchel.integrations.transformers import learn_alpha, use_entmax_attention
        >>> tiny = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1)
        >>> model = BertModel(BertConfig(num_attention_heads=2, **tiny))
        >>> use_entmax_attention(model)
        >>> [a.shape for a in learn_alpha(model, alpha=1.5)]
        [torch.Size([2])]

    References:
        Correia, Niculae & Martins. Adaptively Sparse Transformers. EMNLP 2019.
    """
    name = "learn_alpha"
    initial = check_alpha(name, alpha, _MEANING)
    bounds = Bounds.check(name, low, high)
    start = bounds.logit(name, initial)
    made = []
    for module in entmax_modules(name, model).values():
        like = next(module.parameters())
        learned = LearnedAlpha(_heads(name, module), start, bounds, like)
        if hasattr(module, _KEY):
            delattr(module, _KEY)
        module.add_module(_KEY, learned)
        made.append(learned.alpha_logit)
    return made


def _heads(name: str, module: Module) -> int:
    for owner in (module, getattr(module, "config", None)):
        for label in ("num_attention_heads", "num_heads", "n_heads"):
            heads = getattr(owner, label, None)
            if isinstance(heads, int):
                return heads
    raise FenchelError(
        f"{name}: expected {type(module).__name__} or its config to say its number of heads, but "
        "neither has `num_attention_heads`, `num_heads` or `n_heads`."
    )


def _configs(model: Module, modules: dict[str, Module]) -> list[Any]:
    owners = (model, *modules.values())
    return [owner.config for owner in owners if getattr(owner, "config", None) is not None]
