"""What may be ignored: an int, or an entry of the target as a tensor."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel.integrations import entmax as drop_in

X = torch.tensor([[1.0, 0.0, 2.0], [0.5, 0.1, 0.0], [0.0, 3.0, 1.0]])
Y = torch.tensor([2, 0, 1])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_an_entry_of_the_target_may_be_ignored(dtype):
    ignored, number = Y[1].to(dtype), int(Y[1])
    weight = torch.eye(3)
    calls = [
        lambda i: fy.entmax_loss(X, Y, 0.5, ignore_index=i),
        lambda i: fy.sparsemax_loss(X, Y, ignore_index=i),
        lambda i: fy.fenchel_young_loss(X, Y, "gini", ignore_index=i),
        lambda i: fy.linear_entmax_loss(X, weight, Y, ignore_index=i),
        lambda i: fy.nn.EntmaxLoss(ignore_index=i)(X, Y),
        lambda i: drop_in.Entmax15Loss(ignore_index=i)(X, Y),
        lambda i: drop_in.EntmaxBisectLoss(0.5, ignore_index=i, reduction="sum")(X, Y),
        lambda i: fy.metrics.zero_mass_rate(fy.sparsemax(X), Y, ignore_index=i),
    ]
    for call in calls:
        assert torch.equal(call(ignored), call(number))
        assert not torch.equal(call(number), call(-100)) or call is calls[-1]
    assert repr(fy.nn.EntmaxLoss(ignore_index=ignored)) == repr(
        fy.nn.EntmaxLoss(ignore_index=number)
    )


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (torch.tensor([1]), "torch.int64 of shape (1,)"),
        (torch.tensor(1.0), "torch.float32 of shape ()"),
        (torch.tensor(True), "torch.bool of shape ()"),
    ],
    ids=["1-d", "float", "bool"],
)
def test_other_tensors_are_no_index(wrong, got):
    for name, call in (
        ("entmax_loss", lambda: fy.entmax_loss(X, Y, ignore_index=wrong)),
        ("SparsemaxLoss", lambda: drop_in.SparsemaxLoss(ignore_index=wrong)),
        ("nn.EntmaxLoss", lambda: fy.nn.EntmaxLoss(ignore_index=wrong)),
    ):
        with pytest.raises(fy.FenchelError) as error:
            call()
        assert str(error.value) == f"{name}: expected `ignore_index` to be an int, but got {got}."


# torch's compiler warns of itself.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tensor_to_ignore_is_not_read_by_a_compiled_loss():
    compiled = torch.compile(
        lambda x, i: fy.entmax_loss(x, Y, ignore_index=i), fullgraph=True, backend="eager"
    )
    torch.testing.assert_close(compiled(X, Y[1]), fy.entmax_loss(X, Y, ignore_index=0))
