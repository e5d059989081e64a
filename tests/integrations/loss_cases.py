"""The losses of the drop-in and of the ``entmax`` package, and how the two are compared."""

from __future__ import annotations

import pytest
import torch

SORTED = ("sparsemax_loss", "entmax15_loss")
WITH_ALPHA = ("entmax_bisect_loss", "normmax_bisect_loss")
FUNCTIONS = (*SORTED, "sparsemax_bisect_loss", *WITH_ALPHA)
MODULES = {  # module: its function
    "SparsemaxLoss": "sparsemax_loss",
    "Entmax15Loss": "entmax15_loss",
    "SparsemaxBisectLoss": "sparsemax_bisect_loss",
    "EntmaxBisectLoss": "entmax_bisect_loss",
    "NormmaxBisectLoss": "normmax_bisect_loss",
}
REDUCTIONS = ("elementwise_mean", "sum", "none")
every_function = pytest.mark.parametrize("name", FUNCTIONS)
every_module = pytest.mark.parametrize("name", MODULES)
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)


def classes(*shape: int, n: int, rng: torch.Generator) -> torch.Tensor:
    return torch.randint(n, shape, generator=rng)


def agree(theirs, mine, x: torch.Tensor, target: torch.Tensor, atol: float = 1e-9) -> None:
    """Both give the same losses, of one shape, and the same gradient; theirs in float64."""
    results = []
    for loss, scores in ((theirs, x.double()), (mine, x)):
        leaf = scores.detach().clone().requires_grad_()
        value = loss(leaf, target)
        weight = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
        (grad,) = torch.autograd.grad((value * weight).sum(), leaf)
        assert value.dtype == grad.dtype == scores.dtype
        results.append((value.detach().double(), grad.double()))
    (value, grad), (my_value, my_grad) = results
    assert my_value.shape == value.shape
    torch.testing.assert_close(my_value, value, rtol=atol, atol=atol, equal_nan=True)
    torch.testing.assert_close(my_grad, grad, rtol=0, atol=2 * atol, equal_nan=True)
