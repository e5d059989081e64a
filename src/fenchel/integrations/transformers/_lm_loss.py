from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fenchel.losses import entmax_loss, linear_entmax_loss


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
    r"""The entmax loss of logits, in the place of a model's ``loss_function``.

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
        shift_labels: labels that are shifted already, in the place of ``labels``.
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
