"""Whatever a user can hold goes to another process and comes back the same."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

import fenchel as fy
from fenchel.decoding import beam_search
from fenchel.nn.normalizers import MODULES as MAP_MODULES
from fenchel.regularizers.registry import REGULARIZERS as NAMED
from fenchel.solvers import regularized_argmax
from tests.decoding.automaton import automaton, sources

ROWS, MATRIX = torch.randn(3, 6), torch.randn(3, 4, 4)
CHAIN = fy.SequenceScores(torch.randn(2, 5, 3), torch.randn(3, 3), torch.randn(3))
STRUCTURES = {
    fy.KSubsets(2): ROWS,
    fy.OneOf(): ROWS,
    fy.Sequence(4): MATRIX,
    fy.Sequence(3): CHAIN,
    fy.DependencyTree(): torch.randn(3, 4, 5),
    fy.DependencyTree(projective=True): torch.randn(3, 4, 5),
    fy.Assignment(): MATRIX,
    fy.Alignment(): MATRIX,
}
REGULARIZERS = [
    *(omega() for omega in NAMED.values()),
    fy.Scaled(fy.Gini(), 2.0),
    *(fy.MAP(structure) for structure in STRUCTURES),
    *(fy.SparseMAP(structure) for structure in STRUCTURES),
    *(fy.Marginals(s) for s in STRUCTURES if not isinstance(s, fy.Assignment)),
    *(fy.SmoothedDP(s, "l2") for s in STRUCTURES if isinstance(s, fy.Sequence | fy.Alignment)),
]
MODULES = {
    **{module.__name__: () for module in MAP_MODULES.values()},
    **{name: () for name in ("EntmaxLoss", "Entmax15Loss", "SparsemaxLoss")},
    "FenchelYoungLoss": (fy.Gini(),),
    **{"LinearChain": (3,), "LinearEntmaxLoss": (4, 6), "MultiheadAttention": (8, 2)},
    **{"StructuredLayer": (fy.Sequence(4),), "AlignmentLayer": (), "MatchingLayer": ()},
    "TreeLayer": (),
}


def energy(p: Tensor) -> Tensor:
    return 0.5 * (p * p).sum(-1)


RESULTS = {
    **{f"solve {s!r} {i}": fy.SparseMAP(s).solve(STRUCTURES[s]) for i, s in enumerate(STRUCTURES)},
    "k best": fy.Marginals(fy.Sequence(3)).k_best(CHAIN, 2),
    "means": fy.Marginals(fy.Sequence(3)).predict(CHAIN),
    "sparse rows": fy.sparse_entmax(ROWS),
    "attention": fy.sparse_entmax_attention(*[torch.randn(1, 2, 3, 4)] * 3),
    "distribution": fy.SparseCategorical(fy.sparsemax(ROWS)),
    "sinkhorn": fy.sinkhorn_solve(MATRIX),
    "fista": regularized_argmax(energy, ROWS),
    "custom": fy.Regularizer.from_function(energy),
    "search": beam_search(automaton(3), *sources(0), beam=2),
    "backends": fy.backends(),
}


def same(a, b) -> bool:
    if isinstance(a, Tensor):
        known = torch.equal(a.isnan(), b.isnan()) and a.dtype == b.dtype
        return known and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dict__") and not callable(a):
        return type(a) is type(b) and same(list(vars(a).values()), list(vars(b).values()))
    return repr(a) == repr(b)


copies = pytest.mark.parametrize(
    "copied",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)


@copies
@pytest.mark.parametrize("omega", [*REGULARIZERS, *STRUCTURES], ids=repr)
def test_regularizers_and_structures(omega, copied):
    again = copied(omega)
    assert repr(again) == repr(omega)
    if isinstance(omega, fy.StructuredRegularizer):
        scores = STRUCTURES[omega.structure]
        assert same(again.predict(scores), omega.predict(scores))
    elif isinstance(omega, fy.Regularizer):
        assert same(again.predict(ROWS), omega.predict(ROWS))


@copies
@pytest.mark.parametrize("name", RESULTS)
def test_results(name, copied):
    again = copied(RESULTS[name])
    assert same(again, RESULTS[name])
    if name.startswith("solve"):
        assert same(again.structure(0), RESULTS[name].structure(0))


def test_every_module_is_tried():
    needs_processes = {"VocabParallelEntmaxLoss"}
    others = {"MapModule", "normalizer"}  # the base of the maps' modules, and a function
    assert set(fy.nn.__all__) - needs_processes - others == MODULES.keys()


@copies
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, copied):
    module = getattr(fy.nn, name)(*MODULES[name])
    again = copied(module)
    assert repr(again) == repr(module)
    assert same(list(again.state_dict().values()), list(module.state_dict().values()))


def test_a_result_with_a_graph_is_pickled_without_it():
    """As torch pickles tensors; a deep copy it refuses, in its own words."""
    answer = fy.SparseMAP(fy.KSubsets(2)).solve(ROWS.clone().requires_grad_())
    again = pickle.loads(pickle.dumps(answer))
    assert torch.equal(again.means, answer.means)
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(answer)
