"""The alpha of a model's attention: fixed, annealed or learned; and the modules that have one."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from fenchel._checks import FenchelError, check_at_least
from fenchel.integrations.transformers._library import transformers
from fenchel.maps.alpha import ALPHA, Bounds

_KEY = "entmax_alpha"  # of a config, and of an attention module
NAME = "entmax"  # the implementation whose alpha can be set
_REGISTRY = "ALL_ATTENTION_FUNCTIONS"
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
    number = ALPHA.number("set_alpha", alpha)
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
    initial = ALPHA.number(name, alpha)
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


class AlphaAnnealing(transformers.TrainerCallback):
    r"""Callback of ``Trainer`` that moves the attention's :math:`\alpha` in a straight line.

    .. math:: \alpha_t = \mathit{start} + (\mathit{end} - \mathit{start}) \,
        \min(1, \max(0, t - \mathit{delay}) / \mathit{steps})

    From 1, a softmax model computes what it did before, and ends up sparse. :math:`t` counts the
    optimizer's steps and is the trainer's own, so training resumes where it was.

    Args:
        steps: over how many steps.
        start: :math:`\alpha` before.
        end: :math:`\alpha` after.
        delay: after how many steps it begins.

    The model must have ``attn_implementation="entmax"``.

    Example:
        >>> from fenchel.integrations.transformers import AlphaAnnealing
        >>> annealing = AlphaAnnealing(steps=100)
        >>> [annealing.alpha_at(step) for step in (0, 50, 100, 1000)]
        [1.0, 1.25, 1.5, 1.5]
    """

    def __init__(self, steps: int, start: float = 1.0, end: float = 1.5, delay: int = 0) -> None:
        self.steps = check_at_least("AlphaAnnealing", "steps", steps, 1)
        self.start = replace(ALPHA, keyword="start").number("AlphaAnnealing", start)
        self.end = replace(ALPHA, keyword="end").number("AlphaAnnealing", end)
        self.delay = check_at_least("AlphaAnnealing", "delay", delay, 0)

    def alpha_at(self, step: int) -> float:
        """The alpha of the step that follows ``step`` others."""
        share = min(1.0, max(0, step - self.delay) / self.steps)
        return self.start + (self.end - self.start) * share

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set alpha before the first step, or where training resumes."""
        set_alpha(kwargs["model"], self.alpha_at(state.global_step))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the alpha of this step."""
        set_alpha(kwargs["model"], self.alpha_at(state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model with the alpha that all steps lead to."""
        set_alpha(kwargs["model"], self.alpha_at(state.global_step))


def attention_modules(model: Module) -> dict[str, Module]:
    """The modules under ``model``, itself included, that look up the registry, by name."""
    return {name: m for name, m in model.named_modules() if _looks_up(type(m))}


def entmax_modules(name: str, model: Any) -> dict[str, Module]:
    """Those of them whose implementation is ``"entmax"``: at least one, or an error."""
    if not isinstance(model, Module):
        raise FenchelError(
            f"{name}: expected `model` to be a torch.nn.Module, but got {type(model).__name__}."
        )
    everything = attention_modules(model)
    if not everything:
        raise FenchelError(
            f"{name}: expected a model whose attention looks up the registry of transformers, but "
            f"no module of {type(model).__name__} does."
        )
    found = {path: m for path, m in everything.items() if implementation(m) == NAME}
    if not found:
        got = ", ".join(sorted({repr(implementation(m)) for m in everything.values()}))
        raise FenchelError(
            f'{name}: expected a model with attn_implementation="{NAME}", the one whose alpha can '
            f"be set, but got {got}; use `use_entmax_attention(model)`."
        )
    return found


def implementation(module: Module) -> Any:
    """The name under which a module looks up its attention function."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None)


def _looks_up(kind: type[Module]) -> bool:
    if kind not in _known:
        _known[kind] = _names_registry(kind)
    return _known[kind]


_known: dict[type[Module], bool] = {}


def _names_registry(kind: type[Module]) -> bool:
    if hasattr(kind, "set_attn_implementation"):  # a whole model, which checks names there
        return False
    for ancestor in kind.__mro__:
        if ancestor is Module:
            return False
        for member in vars(ancestor).values():
            if inspect.isfunction(member):
                code = getattr(inspect.unwrap(member), "__code__", None)
                if code is not None and _REGISTRY in code.co_names:
                    return True
    return False
