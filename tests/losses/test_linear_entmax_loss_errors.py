"""Wrong arguments to `fy.linear_entmax_loss`: one clear sentence each."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy

HIDDEN, WEIGHT, TARGET = torch.zeros(3, 4), torch.zeros(5, 4), torch.tensor([0, 1, 4])
WRONG = [
    ([[0.0]], WEIGHT, TARGET, {}, "expected `hidden` to be a floating tensor, but got list"),
    (HIDDEN.long(), WEIGHT, TARGET, {}, "`hidden` to be a floating tensor, but got torch.int64"),
    (HIDDEN, None, TARGET, {}, "expected `weight` to be a floating tensor, but got NoneType"),
    (HIDDEN, WEIGHT.t(), TARGET, {}, "`weight` of shape (V, d), d at least 1, but got (3, 4)"),
    (HIDDEN, WEIGHT[0], TARGET, {}, "but got (3, 4) and (4,)"),
    (torch.tensor(1.0), WEIGHT, TARGET, {}, "but got () and (5, 4)"),
    (HIDDEN[:, :0], WEIGHT[:, :0], TARGET, {}, "but got (3, 0) and (5, 0)"),
    (HIDDEN, WEIGHT[:0], TARGET, {}, "expected at least one class, but `weight` has no rows"),
    (HIDDEN, WEIGHT.double(), TARGET, {}, "one dtype on one device, but got torch.float32 on cpu"),
    (HIDDEN, WEIGHT.to("meta"), TARGET, {}, "and torch.float32 on meta"),
    (HIDDEN, WEIGHT, TARGET, {"bias": [0.0] * 5}, "of shape (5,) and dtype torch.float32, but"),
    (HIDDEN, WEIGHT, TARGET, {"bias": torch.zeros(4)}, "expected `bias` of shape (5,)"),
    (HIDDEN, WEIGHT, TARGET, {"bias": torch.zeros(5).double()}, "but got (5,) and torch.float64"),
    (HIDDEN, WEIGHT, [0, 1, 2], {}, "expected `target` to be a torch.Tensor, but got list"),
    (HIDDEN, WEIGHT, TARGET[:2], {}, "class indices of shape (3,)"),
    (HIDDEN, WEIGHT, torch.full((3, 5), 0.2), {}, "for probabilities use `fy.entmax_loss("),
    (HIDDEN, WEIGHT, TARGET.bool(), {}, "but got torch.bool"),
    (HIDDEN, WEIGHT, TARGET + 1, {}, "class indices in [0, 4] in `target`, but got 5"),
    (HIDDEN, WEIGHT, TARGET - 1, {}, "class indices in [0, 4] in `target`, but got -1"),
    (HIDDEN, WEIGHT, TARGET.to("meta"), {}, "(cpu), but it is on meta"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": 0.0}, "`alpha` must be above 0 (1 is cross-entropy"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": math.nan}, "`alpha` must be above 0"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": "a"}, "a number or a torch.Tensor, but got str"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": torch.ones(3)}, "`alpha` broadcastable to (3, 1)"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": torch.ones(3, 1).long()}, "`alpha` of a floating dtype"),
    (HIDDEN, WEIGHT, TARGET, {"reduction": "avg"}, "'mean', 'sum' or 'none', but got 'avg'"),
    (HIDDEN, WEIGHT, TARGET, {"label_smoothing": 2}, "`label_smoothing` must be in [0, 1]; got 2"),
    (HIDDEN, WEIGHT, TARGET, {"label_smoothing": -1}, "`label_smoothing` must be at least 0"),
    (HIDDEN, WEIGHT, TARGET, {"ignore_index": 0.5}, "`ignore_index` to be an int, but got 0.5"),
    (HIDDEN, WEIGHT, TARGET, {"class_weight": [1.0]}, "`class_weight` to be a floating tensor"),
    (HIDDEN, WEIGHT, TARGET, {"class_weight": torch.ones(4)}, "`class_weight` of shape (5,)"),
    (HIDDEN, WEIGHT, TARGET, {"sparse_grad": 1}, "expected `sparse_grad` to be a bool, but got 1"),
    (
        HIDDEN,
        WEIGHT,
        TARGET,
        {"sparse_grad": True, "label_smoothing": 0.1},
        "expected no `label_smoothing` with `sparse_grad`",
    ),
    (
        HIDDEN,
        WEIGHT,
        TARGET,
        {
            "alpha": torch.full((3, 1), 1.5),
            "label_smoothing": 0.1,
            "class_weight": torch.ones(5),
        },
        "expected one `alpha` with `label_smoothing` and `class_weight`, but got 3 of them",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("hidden", "weight", "target", "kwargs", "said"), WRONG, ids=lambda v: str(v)[:40]
)
def test_wrong_arguments(hidden, weight, target, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.linear_entmax_loss(hidden, weight, target, **kwargs)
    message = str(error.value)
    assert message.startswith("linear_entmax_loss: ")
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message
