"""Layers: scores in, mean structure out, and a loss; each argument changes something."""

from __future__ import annotations

import copy

import pytest
import torch

import fenchel as fy
from fenchel import FenchelError
from fenchel.structures import SequenceScores

LAYERS = {
    "tree": (fy.nn.TreeLayer, fy.DependencyTree(), (2, 4, 5), ("sparsemap", "marginals", "map")),
    "match": (fy.nn.MatchingLayer, fy.Assignment(), (2, 3, 4), ("sparsemap", "map")),
    "path": (
        fy.nn.AlignmentLayer,
        fy.Alignment(),
        (2, 3, 4),
        ("sparsemap", "marginals", "smoothed_dp", "map"),
    ),
}
TARGETS = {
    "tree": torch.tensor([[0, 1, 1, 1], [2, 0, 2, 3]]),
    "match": torch.tensor([[0, 1, 2], [3, 1, 0]]),
    "path": torch.tensor([[[0, 0], [1, 1], [2, 2], [2, 3]], [[0, 0], [0, 1], [1, 2], [2, 3]]]),
}
CHOICES = [(name, omega) for name, (*_, omegas) in LAYERS.items() for omega in omegas]


def regularizer(structure, omega, gamma):
    return {
        "sparsemap": lambda: fy.SparseMAP(structure, gamma),
        "marginals": lambda: fy.Marginals(structure, gamma),
        "smoothed_dp": lambda: fy.SmoothedDP(structure, "l2", gamma),
        "map": lambda: fy.MAP(structure),
    }[omega]()


@pytest.mark.parametrize(("name", "omega"), CHOICES)
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_a_layer_is_its_regularizer(name, omega, gamma, rng):
    make, structure, shape, _ = LAYERS[name]
    layer, ours = make(omega, gamma), regularizer(structure, omega, gamma)
    x, y = torch.randn(shape, generator=rng), TARGETS[name]
    assert torch.equal(layer(x), ours.predict(x))
    rows = ours.loss(x, y, cost=0.5)
    assert torch.equal(layer.loss(x, y, cost=0.5), rows.mean())
    assert torch.equal(layer.loss(x, y, cost=0.5, reduction="none"), rows)
    assert torch.equal(layer.loss(x, y), ours.loss(x, y).mean())
    assert list(layer.parameters()) == [] and layer.state_dict() == {}
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    full = (2,) if name == "tree" else (2, 2)
    lengths = torch.full(full, 2)
    assert torch.equal(layer(x, lengths), ours.predict(x, lengths=lengths))
    mask = torch.ones(shape[-1], dtype=torch.bool)
    mask[-1] = name == "path"
    assert torch.equal(layer(x, None, mask), ours.predict(x, mask=mask))
    if omega != "map":
        leaf = (gamma * 0.3 * x).requires_grad_()  # in reach of other structures
        layer(leaf).square().sum().backward()
        assert leaf.grad.isfinite().all() and (leaf.grad != 0).any()


@pytest.mark.parametrize(("name", "omega"), [c for c in CHOICES if c[1] != "map"])
def test_gamma_changes_the_mean(name, omega, rng):
    make, _, shape, _ = LAYERS[name]
    x = torch.randn(shape, generator=rng)
    assert not torch.equal(make(omega, 1.0)(x), make(omega, 3.0)(x))
    assert not torch.equal(make(omega)(x), make("map")(x))


@pytest.mark.parametrize("omega", ["sparsemap", "marginals", "smoothed_dp"])
def test_gamma_is_the_same_scale_for_all(omega, rng):
    """mean(θ; γ) = mean(θ/γ; 1), loss(θ; γ) = γ loss(θ/γ; 1), and a cost is in units of θ."""
    x = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
    one, four = fy.nn.AlignmentLayer(omega), fy.nn.AlignmentLayer(omega, 4.0)
    torch.testing.assert_close(four(x), one(x / 4))
    y = TARGETS["path"]
    torch.testing.assert_close(
        four.loss(x, y, cost=2.0), 4 * one.loss(x / 4, y, cost=0.5), rtol=1e-9, atol=1e-9
    )


def test_arguments_of_the_structure(rng):
    x = torch.randn(8, 5, 6, generator=rng)
    tree, several = fy.nn.TreeLayer("map"), fy.nn.TreeLayer("map", single_root=False)
    planar = fy.nn.TreeLayer("map", projective=True)
    assert not torch.equal(tree(x), several(x)) and not torch.equal(tree(x), planar(x))
    assert (tree(x)[..., 0].sum(1) == 1).all() and (several(x)[..., 0].sum(1) > 1).any()
    wide, narrow = fy.nn.AlignmentLayer("map"), fy.nn.AlignmentLayer("map", band=1)
    assert not torch.equal(wide(x), narrow(x))


@pytest.mark.parametrize("omega", ["sparsemap", "marginals", "smoothed_dp", "map"])
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_linear_chain(omega, gamma, rng):
    chain = fy.nn.LinearChain(3, omega, gamma)
    assert [(k, tuple(v.shape)) for k, v in chain.named_parameters()] == [
        ("transitions", (3, 3)),
        ("start", (3,)),
        ("end", (3,)),
    ]
    assert all((p == 0).all() for p in chain.parameters())
    with torch.no_grad():
        for p in chain.parameters():
            p.normal_(generator=rng)
    x, y = torch.randn(9, 4, 3, generator=rng), torch.randint(3, (9, 4), generator=rng)
    lengths = torch.tensor([4, 2, 3] * 3)
    scores = SequenceScores(x, chain.transitions, chain.start, chain.end)
    ours = regularizer(fy.Sequence(3), omega, gamma)
    assert torch.equal(chain(x, lengths), ours.predict(scores, lengths=lengths).emissions)
    assert (chain(x, lengths)[1, 2:] == 0).all()
    loss = chain.loss(x, y, lengths)
    assert torch.equal(loss, ours.loss(scores, y, lengths=lengths).mean())
    weights = torch.rand(9, generator=rng)  # else a difference of counts may cancel
    rows = chain.loss(x, y, lengths, reduction="none")
    grads = torch.autograd.grad(weights @ rows, list(chain.parameters()))
    for grad in grads:
        assert grad.isfinite().all() and (grad != 0).any()
    if omega != "map":
        grads = torch.autograd.grad(chain(x, lengths).square().sum(), list(chain.parameters()))
        assert all(grad.isfinite().all() for grad in grads)
        assert any((grad != 0).any() for grad in grads)
    other = fy.nn.LinearChain(3, omega, gamma)
    assert not torch.equal(other(x), chain(x))
    other.load_state_dict(chain.state_dict())
    assert torch.equal(other(x), chain(x))
    double = copy.deepcopy(chain).double()
    torch.testing.assert_close(double(x.double()).float(), chain(x), rtol=1e-5, atol=1e-5)
    mask = torch.tensor([True, True, False])
    assert (chain(x, None, mask)[..., 2] == 0).all()


def test_any_structure_makes_a_layer(rng):
    x = torch.randn(3, 6, generator=rng)
    layer = fy.nn.StructuredLayer(fy.KSubsets(2))
    torch.testing.assert_close(layer(x), fy.budget(x, 2))


def test_reprs():
    assert repr(fy.nn.LinearChain(3)) == "LinearChain(Sequence(3), 'sparsemap', gamma=1.0)"
    assert repr(fy.nn.TreeLayer("marginals", 2)) == (
        "TreeLayer(DependencyTree(single_root=True, projective=False), 'marginals', gamma=2.0)"
    )
    assert repr(fy.nn.AlignmentLayer("smoothed_dp", 0.5, band=1)) == (
        "AlignmentLayer(Alignment(band=1), 'smoothed_dp', gamma=0.5)"
    )
    assert repr(fy.nn.MatchingLayer()) == "MatchingLayer(Assignment(), 'sparsemap', gamma=1.0)"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: fy.nn.TreeLayer("softmax"),
            "nn.TreeLayer: expected `omega` to be one of 'sparsemap', 'marginals', 'smoothed_dp', "
            "'map', but got 'softmax'.",
        ),
        (
            lambda: fy.nn.TreeLayer("map", -1),
            "nn.TreeLayer: `gamma` must be a finite number above 0; got -1.",
        ),
        (
            lambda: fy.nn.LinearChain(2, gamma="1"),
            "nn.LinearChain: expected `gamma` to be a number, but got str.",
        ),
        (
            lambda: fy.nn.LinearChain(0),
            "Sequence: `n_tags` must be at least 1; got 0.",
        ),
        (
            lambda: fy.nn.MatchingLayer("marginals"),
            "Marginals: Assignment: summing over all assignments is #P-hard (it is a permanent), "
            "so there is no smoothing 'entropy'; use SparseMAP, which needs only the best "
            "assignment, or `sinkhorn` for an entropic relaxation.",
        ),
        (
            lambda: fy.nn.TreeLayer("smoothed_dp"),
            "SmoothedDP: expected a structure whose `smoothings` have 'l2', such as Sequence, but "
            "got DependencyTree(single_root=True, projective=False); SparseMAP needs only the "
            "argmax.",
        ),
        (
            lambda: fy.nn.StructuredLayer("tree"),
            "SparseMAP: expected `structure` to be a fenchel.Structure, such as DependencyTree(), "
            "but got 'tree'.",
        ),
        (
            lambda: fy.nn.LinearChain(3)(torch.zeros(4, 2)),
            "SparseMAP.predict: expected emissions of shape (*batch, T, 3) with T at least 1, for "
            "Sequence(3), but got (4, 2).",
        ),
        (
            lambda: fy.nn.TreeLayer(gamma=2.0)([1.0]),
            "SparseMAP.predict: expected `scores` to be a torch.Tensor, but got list.",
        ),
        (
            lambda: fy.nn.TreeLayer(gamma=2.0)(torch.zeros(2, 3, dtype=torch.int64)),
            "SparseMAP.predict: expected `scores` of a floating dtype (float64, float32, float16 "
            "or bfloat16), but got torch.int64; convert with `scores.float()`.",
        ),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(FenchelError) as error:
        call()
    assert str(error.value) == sentence
