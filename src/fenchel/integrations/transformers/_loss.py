"""A language model trained with an entmax loss: of its logits, or of what enters its last layer."""

from __future__ import annotations

import functools
import inspect
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module

from fenchel._checks import FenchelError, check_alpha
from fenchel.losses import entmax_loss, linear_entmax_loss

_PROBE = 100.0  # a logit this large shows a softcap and a scale


class Head:
    """Two hooks on the output layer, which do nothing until ``skip`` is set."""

    def __init__(self, name: str, model: Any) -> None:
        layer = model.get_output_embeddings()
        if type(layer) is not Linear:
            raise FenchelError(
                f"{name}: expected {type(model).__name__} to have a torch.nn.Linear for a head, "
                f"but it is {type(layer).__name__}; use fused=False."
            )
        self.name = name
        self.layer = layer
        self.skip = False
        self.checked = False
        self.hidden: Tensor | None = None
        self.output: Tensor | None = None
        self.handles = (
            layer.register_forward_pre_hook(self.before),
            layer.register_forward_hook(self.after),
        )

    def before(self, layer: Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Keep the hidden states; go on with one position of them, or with the probe."""
        if not self.skip:
            return None
        self.hidden = inputs[0]
        if self.checked:
            return (inputs[0][:, :1],)
        return (_probe(self.layer.weight, inputs[0]),)

    def after(self, layer: Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the logits of the probe, to see what becomes of them."""
        if self.skip and not self.checked:
            self.output = output.detach()

    def bias(self, model: Any) -> Tensor | None:
        """What is added to the logits: the layer's bias, and that of the Marian and BART family."""
        own, more = self.layer.bias, getattr(model, "final_logits_bias", None)
        if more is None:
            return own
        more = more.reshape(-1).to(self.layer.weight.dtype)
        return more if own is None else own + more

    def check(self, model: Any, logits: Tensor) -> None:
        """Refuse a model that does something else to its logits after the head."""
        if self.checked:
            return
        expected = self.output
        assert expected is not None
        more = getattr(model, "final_logits_bias", None)
        if more is not None:
            expected = expected + more
        same = logits.shape == expected.shape and torch.allclose(
            logits.detach().float(), expected.float(), rtol=1e-3, atol=1e-3
        )
        self.output = None
        if not same:
            raise FenchelError(
                f"{self.name}: expected the logits of {type(model).__name__} to be what its head "
                "computes, but it changes them afterwards (a softcap, a scale); use fused=False."
            )
        self.checked = True

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()


def _probe(weight: Tensor, hidden: Tensor) -> Tensor:
    """One position of hidden states for which the largest logit is large."""
    with torch.no_grad():
        rows = weight.float()
        row = rows[rows.square().sum(1).argmax()]
        probe = row * (_PROBE / row.square().sum().clamp_min(1e-12))
        return probe.to(hidden.dtype).expand(hidden.shape[0], 1, -1)


def entmax_lm_loss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int | None = None,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    *,
    alpha: float | Tensor = 1.5,
    shift: bool = True,
    label_smoothing: float = 0.0,
    **others: Any,
) -> Tensor:
    r"""The entmax loss of logits, instead of a model's ``loss_function``.

    .. math:: \frac{1}{n} \sum_{i : y_{i+1} \ne \mathit{ignored}}
        L_\alpha(\theta_i; y_{i+1})

    For models whose ``forward`` calls ``self.loss_function``, as causal language models do:
    ``model.loss_function = partial(entmax_lm_loss, alpha=1.5)``. Logits are needed in full; where
    the head is a plain linear layer, :func:`use_entmax_loss` does without.

    Args:
        logits: shape (…, tokens, V).
        labels: class indices, shape (…, tokens); token i predicts label i + 1.
        vocab_size: not needed, the size of ``logits`` counts.
        num_items_in_batch: what the sum is divided by, as ``Trainer`` gives it when it accumulates
            gradients; by default the number of labels that count.
        ignore_index: class index of labels that do not count.
        shift_labels: labels that are shifted already, instead of ``labels``.
        alpha: a number in (0, ∞], 1 being cross-entropy.
        shift: False where token i predicts label i: encoder-decoders, masked language models.
        label_smoothing: how much of each target is spread evenly.
        others: what else a model passes on to its loss; not used.

    Example:
        >>> from fenchel.integrations.transformers import entmax_lm_loss
        >>> logits = torch.tensor([[[0.0, 5.0], [5.0, 0.0], [0.0, 0.0]]])
        >>> entmax_lm_loss(logits, torch.tensor([[0, 1, 0]]))
        tensor(0.)
    """
    target = _target(labels, shift_labels, shift, ignore_index).to(logits.device)
    rows = logits.reshape(-1, logits.shape[-1]).float()
    loss = entmax_loss(
        rows,
        target.reshape(-1),
        alpha,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="mean" if num_items_in_batch is None else "sum",
    )
    return _divided(loss, num_items_in_batch)


def linear_entmax_lm_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor | None,
    num_items_in_batch: Tensor | int | None,
    shift_labels: Tensor | None,
    *,
    alpha: float | Tensor,
    shift: bool,
    label_smoothing: float,
    ignore_index: int = -100,
) -> Tensor:
    """The same from the hidden states in front of the head, without logits."""
    target = _target(labels, shift_labels, shift, ignore_index).to(hidden.device)
    loss = linear_entmax_loss(
        hidden,
        weight,
        target,
        alpha,
        bias=bias,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="mean" if num_items_in_batch is None else "sum",
    )
    return _divided(loss, num_items_in_batch)


def _target(
    labels: Tensor | None, shift_labels: Tensor | None, shift: bool, ignore_index: int
) -> Tensor:
    if shift_labels is not None:
        return shift_labels
    assert labels is not None
    return F.pad(labels[..., 1:], (0, 1), value=ignore_index) if shift else labels


def _divided(loss: Tensor, items: Tensor | int | None) -> Tensor:
    if items is None:
        return loss
    return loss / (items.to(loss.device) if torch.is_tensor(items) else items)


_NAME = "use_entmax_loss"
_KEY = "_fenchel_entmax_loss"


class EntmaxLossHandle:
    """What :func:`use_entmax_loss` did to a model.

    Attributes:
        alpha: the loss's alpha, which may be set at any time.
    """

    def __init__(
        self, model: Any, alpha: float | Tensor, fused: bool, shift: bool, label_smoothing: float
    ) -> None:
        self.model = model
        self.alpha = alpha
        self.shift = shift
        self.label_smoothing = label_smoothing
        self.head = Head(_NAME, model) if fused else None
        self.forward = MethodType(_forward_with_loss(model.forward.__func__), model)
        self.before = {key: model.__dict__.get(key) for key in ("forward", "accepts_loss_kwargs")}
        model.forward = self.forward
        model.accepts_loss_kwargs = True  # Trainer then counts the labels of an accumulated batch
        model.__dict__[_KEY] = self

    def remove(self) -> None:
        """Give the model its own loss back."""
        if self.model.__dict__.get(_KEY) is not self:
            return
        del self.model.__dict__[_KEY]
        if self.model.forward != self.forward:
            # Wrapped once more since, as by accelerate: ours stays inside and does nothing.
            del self.before["forward"]
        for key, value in self.before.items():
            if value is None:
                delattr(self.model, key)
            else:
                setattr(self.model, key, value)
        if self.head is not None:
            self.head.remove()


def use_entmax_loss(
    model: Any,
    alpha: float | Tensor = 1.5,
    *,
    fused: bool = True,
    shift: bool | None = None,
    label_smoothing: float = 0.0,
) -> EntmaxLossHandle:
    r"""Make a language model's loss the entmax loss, in place.

    From then on ``model(…, labels=labels).loss`` is :math:`L_\alpha` of the labels, shifted,
    ignored (−100) and divided (``num_items_in_batch``) as in ``transformers``, for causal language
    models, encoder-decoders and masked language models. Everything without ``labels``, as
    ``generate``, is as before.

    In training no logits are formed: the hidden states in front of the head go to
    :func:`fenchel.linear_entmax_loss`, and ``logits`` of the output is None. In ``eval`` mode, or
    with ``return_logits=True`` in the call, logits are there and the loss is computed from them;
    ``return_logits=False`` leaves them out in ``eval`` mode too. With ``labels``, no cache is kept
    unless ``use_cache=True`` is passed.

    Args:
        model: a ``PreTrainedModel`` with an output layer.
        alpha: a number in (0, ∞], or a tensor with gradient. 1 is cross-entropy.
        fused: False forms logits always, for a model that is not linear from the hidden states to
            the logits. One that is not is refused at the first step, with this remedy.
        shift: whether token i predicts label i + 1; by default so unless the model is an
            encoder-decoder or a masked language model.
        label_smoothing: how much of each target is spread evenly. That of ``TrainingArguments``
            takes the labels away and brings cross-entropy back: leave it 0.

    Returns:
        A handle with ``alpha``, and ``remove()`` to undo it.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from fenchel.integrations.transformers import use_entmax_loss
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2))
        >>> handle = use_entmax_loss(model, alpha=1.5)
        >>> tokens = torch.arange(6)[None]
        >>> out = model.train()(tokens, labels=tokens)
        >>> out.loss.shape, out.logits
        (torch.Size([]), None)
        >>> model.eval()(tokens, labels=tokens).logits.shape
        torch.Size([1, 6, 9])
    """
    if not hasattr(model, "get_output_embeddings"):
        raise FenchelError(
            f"{_NAME}: expected `model` to be a PreTrainedModel, but got {type(model).__name__}."
        )
    if not isinstance(alpha, Tensor):
        check_alpha(_NAME, alpha, "(1 is cross-entropy)", "a number or a tensor")
    if shift is None:
        shift = not (model.config.is_encoder_decoder or "MaskedLM" in type(model).__name__)
    if _KEY in model.__dict__:
        model.__dict__[_KEY].remove()
    return EntmaxLossHandle(model, alpha, fused, shift, label_smoothing)


def _forward_with_loss(original: Any) -> Any:
    names = list(inspect.signature(original).parameters)[1:]

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = self.__dict__.get(_KEY)
        if handle is None:
            return original(self, *args, **kwargs)
        kwargs.update(zip(names, args, strict=False))
        return_logits = kwargs.pop("return_logits", None)
        labels, shifted = kwargs.pop("labels", None), kwargs.pop("shift_labels", None)
        if labels is None and shifted is None:
            return original(self, **kwargs)
        items = kwargs.pop("num_items_in_batch", None)
        as_dict = kwargs.pop("return_dict", None)
        as_dict = getattr(self.config, "return_dict", True) if as_dict is None else as_dict
        if "use_cache" in names and kwargs.get("use_cache") is None:
            kwargs["use_cache"] = False
        _add_decoder_inputs(self, kwargs, labels)
        with_logits = not self.training if return_logits is None else return_logits
        if with_logits or handle.head is None:
            out = original(self, return_dict=True, **kwargs)
            loss = entmax_lm_loss(
                out.logits,
                labels,
                num_items_in_batch=items,
                shift_labels=shifted,
                alpha=handle.alpha,
                shift=handle.shift,
                label_smoothing=handle.label_smoothing,
            )
        else:
            out, hidden = _without_logits(self, original, handle.head, kwargs)
            loss = linear_entmax_lm_loss(
                hidden,
                handle.head.layer.weight,
                handle.head.bias(self),
                labels,
                items,
                shifted,
                alpha=handle.alpha,
                shift=handle.shift,
                label_smoothing=handle.label_smoothing,
            )
        fields = dict(out.items())
        auxiliary = fields.get("aux_loss")
        if isinstance(auxiliary, Tensor) and hasattr(self, "router_aux_loss_coef"):
            loss = loss + self.router_aux_loss_coef * auxiliary.to(loss.device)
        if not with_logits:
            fields.pop("logits")
        out = type(out)(**{**fields, "loss": loss})
        return out if as_dict else out.to_tuple()

    return forward


def _without_logits(
    model: Any, original: Any, head: Head, kwargs: dict[str, Any]
) -> tuple[Any, Tensor]:
    """The output, whose logits mean nothing, and the hidden states that the head was given."""
    head.skip = True
    try:
        out = original(model, return_dict=True, **kwargs)
    finally:
        head.skip = False
    hidden, head.hidden = head.hidden, None
    if hidden is None or hidden.dim() != 3:
        raise FenchelError(
            f"{_NAME}: expected the head of {type(model).__name__} to be called on hidden states "
            "of shape (batch, tokens, d), but it was not; use fused=False."
        )
    head.check(model, out.logits)
    return out, hidden


def _add_decoder_inputs(model: Any, kwargs: dict[str, Any], labels: Tensor | None) -> None:
    """What an encoder-decoder does itself when it has labels."""
    given = ("decoder_input_ids", "decoder_inputs_embeds")
    if not model.config.is_encoder_decoder or labels is None:
        return
    if all(kwargs.get(name) is None for name in given):
        kwargs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
