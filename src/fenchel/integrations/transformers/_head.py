"""A model's output layer, watched: it hands over its input and need not compute all logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module

from fenchel._checks import FenchelError

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
