"""Losses as modules: the same numbers as the functions, buffers, learned alpha, printing."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import fenchel as fy
from tests.regularizers.cases import randn

MODULES = {
    "EntmaxLoss": (fy.nn.EntmaxLoss, fy.entmax_loss),
    "Entmax15Loss": (fy.nn.Entmax15Loss, fy.entmax15_loss),
    "SparsemaxLoss": (fy.nn.SparsemaxLoss, fy.sparsemax_loss),
    "FenchelYoungLoss": (
        lambda **k: fy.nn.FenchelYoungLoss(fy.Norm(2), **k),
        lambda *a, **k: fy.fenchel_young_loss(*a, omega=fy.Norm(2), **k),
    ),
}
every_module = pytest.mark.parametrize("name", MODULES)
ARGUMENTS = [
    {},
    {"weight": torch.tensor([1.0, 2.0, 0.5, 0.1])},
    {"ignore_index": 2},
    {"label_smoothing": 0.2},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"dim": 0},
    {"cost": 1.5},
    {"cost": torch.rand(4, 4, generator=torch.Generator().manual_seed(3))},
]


@every_module
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda a: ",".join(a) or "none")
def test_module_is_the_function(name, arguments, rng):
    make, function = MODULES[name]
    scores = randn(4, 4, rng=rng, dtype=torch.float32)
    target = torch.tensor([0, 1, 2, 3])
    loss = make(**arguments)(scores, target)
    assert torch.equal(loss, function(scores, target, **arguments))
    if arguments:
        assert not torch.equal(loss, make()(scores, target))  # every argument changes something


@every_module
def test_tensors_are_buffers(name):
    make, _ = MODULES[name]
    module = make(weight=torch.ones(4), cost=torch.ones(4, 4))
    assert set(module.state_dict()) == {"weight", "cost"}
    assert module.double().weight.dtype == torch.float64
    copy.deepcopy(module)
    again = pickle.loads(pickle.dumps(module))
    scores, target = torch.randn(3, 4), torch.tensor([0, 1, 2])
    assert torch.equal(again(scores, target), module(scores, target))


@every_module
def test_nothing_to_save_without_tensors(name):
    make, _ = MODULES[name]
    assert not make(cost=2.0).state_dict()
    assert not list(make().parameters())


def test_learned_alpha():
    loss = fy.nn.EntmaxLoss(1.4, learnable=True, shape=(3, 1), low=1.1, high=1.9)
    scores, target = torch.randn(3, 5), torch.tensor([0, 1, 2])
    assert torch.allclose(loss.alpha, torch.full((3, 1), 1.4))
    wanted = fy.entmax_loss(scores, target, torch.full((3, 1), 1.4))
    assert torch.allclose(loss(scores, target), wanted)
    loss(scores, target).backward()
    assert (loss.alpha_logit.grad != 0).any()
    with torch.no_grad():
        loss.alpha_logit.zero_()
    loss.reset_parameters()
    assert torch.allclose(loss.alpha, torch.full((3, 1), 1.4))


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (fy.nn.EntmaxLoss(), "EntmaxLoss(alpha=1.5)"),
        (
            fy.nn.EntmaxLoss(1.25, True, ignore_index=0),
            "EntmaxLoss(alpha=1.25, ignore_index=0, learnable=True, shape=(), low=1.0, high=2.0)",
        ),
        (
            fy.nn.SparsemaxLoss(reduction="sum", cost=1.0),
            "SparsemaxLoss(reduction='sum', cost=1.0)",
        ),
        (fy.nn.Entmax15Loss(weight=torch.ones(3)), "Entmax15Loss(weight=<(3,)>)"),
        (fy.nn.FenchelYoungLoss("gini", dim=-1), "FenchelYoungLoss(Gini(), dim=-1)"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_repr(module, text):
    assert repr(module) == text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fy.nn.EntmaxLoss(-0.5), "nn.EntmaxLoss: `alpha` must be above 0"),
        (
            lambda: fy.nn.EntmaxLoss(weight=[1.0]),
            "nn.EntmaxLoss: expected `weight` to be a torch.T",
        ),
        (lambda: fy.nn.SparsemaxLoss(reduction="x"), "nn.SparsemaxLoss: expected `reduction`"),
        (
            lambda: fy.nn.SparsemaxLoss(label_smoothing=2),
            "nn.SparsemaxLoss: `label_smoothing` must",
        ),
        (
            lambda: fy.nn.Entmax15Loss(ignore_index="pad"),
            "nn.Entmax15Loss: expected `ignore_index`",
        ),
        (lambda: fy.nn.Entmax15Loss(dim=1.0), "nn.Entmax15Loss: expected `dim` to be an int"),
        (lambda: fy.nn.Entmax15Loss(cost=-1.0), "nn.Entmax15Loss: `cost` must be at least 0"),
        (lambda: fy.nn.FenchelYoungLoss("giny"), "nn.FenchelYoungLoss: expected `omega` to be one"),
    ],
)
def test_wrong_arguments(make, said):
    with pytest.raises(fy.FenchelError) as error:
        make()
    assert said in str(error.value)


@every_module
def test_it_learns(name):
    """Blobs that a line separates: the loss reaches exactly 0, as its margin promises."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 4.0]])
    target = torch.arange(90) % 3
    points = centres[target] + 0.3 * torch.randn(90, 2, generator=generator)
    model = nn.Linear(2, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    make, _ = MODULES[name]
    loss = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = loss(model(points), target).item()
    for _ in range(200):
        optimizer.zero_grad()
        value = loss(model(points), target)
        value.backward()
        optimizer.step()
    assert first > 0.2
    assert value.item() == 0.0
    assert (model(points).argmax(1) == target).all()
