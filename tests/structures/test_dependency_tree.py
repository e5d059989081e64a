import math

import pytest
import torch

from fenchel.structures import DependencyTree
from tests.structures.case import Refused, case, mask
from tests.structures.members import members_of

TREES = [
    DependencyTree(single, projective) for single in (True, False) for projective in (False, True)
]
trees = pytest.mark.parametrize("tree", TREES, ids=repr)
TREE, PROJECTIVE = DependencyTree(), DependencyTree(projective=True)
LENGTHS = torch.tensor([3, 1, 2])

CASES = [
    case("tree", TREE, (2, 3, 4)),
    case("tree-4", TREE, (4, 5)),
    case("tree-1", TREE, (2, 1, 2)),
    case("tree-lengths", TREE, (3, 3, 4), lengths=LENGTHS),
    case("tree-mask", TREE, (2, 3, 4), mask=mask(2, 3, 4, off=[(0, 1, 0), (1, 2, 1)])),
    case("forest", DependencyTree(single_root=False), (2, 1, 3, 4)),
    case("projective", PROJECTIVE, (2, 4, 5)),
    case("projective-lengths", PROJECTIVE, (3, 3, 4), lengths=LENGTHS),
    case("projective-forest", DependencyTree(False, True), (2, 3, 4)),
]
SOLVED = [
    case("trees", TREE, (2, 4, 5)),
    case("projective trees", PROJECTIVE, (2, 4, 5)),
]
FACES = [case("tree-6", TREE, (1, 6, 7)), case("projective-6", PROJECTIVE, (1, 6, 7))]
REFUSED = [
    Refused(
        TREE,
        torch.zeros(2, 3, 4),
        "to hold the head of every word (0 is the root), an integer tensor of shape (2, 3)",
        (2, 3),
    )
]


def log_partition(tree, scores, lengths=None, mask=None, gamma=1.0):
    problem = tree.problem("test", scores, lengths, mask)
    return problem.values(tree.smoothed_max(problem, "entropy", gamma))


def marginals(tree, scores, lengths=None, mask=None, gamma=1.0):
    problem = tree.problem("test", scores, lengths, mask)
    return problem.means(tree.smoothed_argmax(problem, "entropy", gamma))


def random(*shape, rng, dtype=torch.float64):
    return torch.randn(*shape, generator=rng, dtype=dtype)


def own_columns(n):
    return torch.arange(n + 1) == torch.arange(n).unsqueeze(1) + 1


@pytest.mark.parametrize(
    ("tree", "counts"),
    [
        (DependencyTree(False), [1, 3, 16, 125]),  # (n + 1)^(n - 1)
        (DependencyTree(True), [1, 2, 9, 64]),  # n^(n - 1)
        (DependencyTree(False, True), [1, 3, 12, 55]),  # binom(3n, n) / (2n + 1)
        (DependencyTree(True, True), [1, 2, 7, 30]),  # binom(3n - 2, n - 1) / n
    ],
    ids=repr,
)
def test_counts(tree, counts, backend):
    for n, count in enumerate(counts, 1):
        assert len(set(members_of(tree, n, n + 1))) == count
        value = log_partition(tree, torch.zeros(n, n + 1, dtype=torch.float64))
        assert float(value) == pytest.approx(math.log(count), rel=1e-14, abs=1e-15)


@pytest.mark.parametrize("n", [10, 60])
def test_counts_of_long_sentences(n):
    zeros = torch.zeros(n, n + 1, dtype=torch.float64)
    many, one = DependencyTree(False), DependencyTree(True)
    assert float(log_partition(many, zeros)) == pytest.approx((n - 1) * math.log(n + 1), rel=1e-14)
    assert float(log_partition(one, zeros)) == pytest.approx((n - 1) * math.log(n), rel=1e-14)
    count = math.comb(3 * n, n) // (2 * n + 1)
    several = DependencyTree(False, True)
    assert float(log_partition(several, zeros)) == pytest.approx(math.log(count), rel=1e-14)


@trees
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_marginals_are_means_of_trees(tree, scale, backend, rng):
    n = 6
    scores = random(3, n, n + 1, rng=rng) * scale - 12
    mean = marginals(tree, scores)
    ones = torch.ones(3, n, dtype=torch.float64)
    torch.testing.assert_close(mean.sum(2), ones, rtol=1e-13 * scale, atol=0)
    assert bool((mean >= (0 if backend == "native" else -1e-12)).all())
    assert bool((mean[:, own_columns(n)] == 0).all())
    roots = mean[..., 0].sum(1)
    if tree.single_root:
        torch.testing.assert_close(roots, ones[:, 0], rtol=1e-13 * scale, atol=0)
    elif scale == 1.0:
        assert bool((roots > 1.01).all())


@trees
def test_a_word_can_be_moved_as_a_whole(tree, backend, rng):
    n = 5
    scores, moves = random(2, n, n + 1, rng=rng), 10 * random(2, n, rng=rng)
    moved = scores + moves.unsqueeze(2)
    torch.testing.assert_close(marginals(tree, moved), marginals(tree, scores))
    torch.testing.assert_close(
        log_partition(tree, moved), log_partition(tree, scores) + moves.sum(1)
    )


@trees
def test_temperature(tree, backend, rng):
    scores = random(4, 5, rng=rng)
    torch.testing.assert_close(marginals(tree, scores, gamma=0.5), marginals(tree, 2 * scores))
    hot = log_partition(tree, scores, gamma=0.5)
    torch.testing.assert_close(hot, 0.5 * log_partition(tree, 2 * scores))
    cold = marginals(tree, scores, gamma=1e-3)
    torch.testing.assert_close(cold, tree.argmax(scores), atol=1e-6, rtol=0)


def test_strong_cycle(backend):
    """Two words that choose each other with e^40 over the root: half of the mass each way."""
    scores = torch.tensor([[0.0, 0.0, 40.0], [0.0, 40.0, 0.0]], dtype=torch.float64)
    half = torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0]], dtype=torch.float64)
    for single in (True, False):
        tree = DependencyTree(single)
        torch.testing.assert_close(marginals(tree, scores), half, rtol=1e-13, atol=1e-14)
        assert float(log_partition(tree, scores)) == pytest.approx(40 + math.log(2), rel=1e-15)


@trees
def test_one_word(tree, backend):
    scores = torch.tensor([[-3.0, math.nan]], dtype=torch.float64)
    assert tree.argmax(scores).tolist() == [[1.0, 0.0]]
    assert marginals(tree, scores).tolist() == [[1.0, 0.0]]
    assert log_partition(tree, scores).tolist() == -3.0


@pytest.mark.parametrize("projective", [False, True])
def test_the_best_tree_has_one_root(projective, backend, rng):
    scores = random(20, 7, 8, rng=rng)
    scores[..., 0] += 5  # all words want the root
    one = DependencyTree(True, projective).argmax(scores)
    assert one[..., 0].sum(1).tolist() == [1.0] * 20
    assert one.sum(2).tolist() == [[1.0] * 7] * 20
    assert bool((DependencyTree(False, projective).argmax(scores)[..., 0].sum(1) > 1).all())


@trees
def test_ties_have_one_answer(tree, backend):
    scores = torch.zeros(3, 4, 5)
    first = tree.argmax(scores)
    assert torch.equal(first[0], first[1]) and torch.equal(first, tree.argmax(scores))
    heads = first.argmax(-1)
    assert torch.equal(tree.score(scores, heads), torch.zeros(3))  # a tree, or an error


@trees
def test_gradients(tree, backend, rng):
    scores = random(2, 3, 4, rng=rng)
    scores[0, 0, 2] = -math.inf
    free = (scores > -math.inf) & ~own_columns(3)

    def whole(x):
        return torch.where(free, x, scores)

    start = torch.where(free, scores, 0.0).requires_grad_()
    weights = random(2, 3, 4, rng=rng)
    lengths = torch.tensor([3, 2])
    torch.autograd.gradcheck(lambda x: log_partition(tree, whole(x), lengths), start)
    torch.autograd.gradcheck(lambda x: marginals(tree, whole(x), lengths), start)
    torch.autograd.gradgradcheck(
        lambda x: log_partition(tree, whole(x), lengths), start, fast_mode=True
    )
    torch.autograd.gradgradcheck(
        lambda x: marginals(tree, whole(x), lengths) * weights, start, fast_mode=True
    )


@trees
def test_gradient_of_log_partition_is_the_marginals(tree, backend, rng):
    scores = random(2, 4, 5, rng=rng).masked_fill(own_columns(4), math.nan).requires_grad_()
    (grad,) = torch.autograd.grad(log_partition(tree, scores, gamma=2.0).sum(), scores)
    torch.testing.assert_close(grad, marginals(tree, scores, gamma=2.0).detach())
    assert bool((grad[:, own_columns(4)] == 0).all())
    direction = random(2, 4, 5, rng=rng)
    plain = torch.autograd.grad(marginals(tree, scores), scores, direction)[0]
    graph = torch.autograd.grad(marginals(tree, scores), scores, direction, create_graph=True)[0]
    assert graph.requires_grad
    torch.testing.assert_close(plain, graph.detach())
    assert bool((plain[:, own_columns(4)] == 0).all())


@trees
def test_padding(tree, backend, rng):
    lengths = torch.tensor([3, 1, 5])
    scores = random(3, 5, 6, rng=rng)
    garbage = scores.clone()
    for row, length in enumerate(lengths):
        garbage[row, length:] = math.nan
        garbage[row, :, length + 1 :] = math.inf
    garbage.requires_grad_()
    mean = marginals(tree, garbage, lengths)
    value = log_partition(tree, garbage, lengths)
    best = tree.argmax(garbage, lengths=lengths)
    mean.square().sum().backward()
    for row, length in enumerate(lengths):
        alone = scores[row, :length, : length + 1].clone().requires_grad_()
        own = marginals(tree, alone)
        own.square().sum().backward()
        there = (row, slice(0, length), slice(0, length + 1))
        pairs = [
            (mean[there], own),
            (value[row], log_partition(tree, alone)),
            (garbage.grad[there], alone.grad),
        ]
        for got, want in pairs:
            if backend == "native":
                assert torch.equal(got, want)
            else:  # torch adds longer rows in another order
                torch.testing.assert_close(got, want)
        assert torch.equal(best[there], tree.argmax(alone))
        for whole in (mean, garbage.grad, best):
            outside = whole[row].detach().clone()
            outside[:length, : length + 1] = 0
            assert bool((outside == 0).all())


@trees
def test_masks(tree, backend, rng):
    scores = random(2, 4, 5, rng=rng)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1, 0] = mask[2, 1] = False
    filled = scores.masked_fill(~mask, -math.inf)
    mean = marginals(tree, scores, mask=mask)
    assert torch.equal(mean, marginals(tree, filled))
    assert bool((mean[:, ~mask] == 0).all())
    assert torch.equal(tree.argmax(scores, mask=mask), tree.argmax(filled))


@trees
def test_shapes_and_dtypes(tree, backend, rng):
    scores = random(2, 3, 4, 5, rng=rng, dtype=torch.float32)
    mean, value = marginals(tree, scores), log_partition(tree, scores)
    assert (mean.shape, mean.dtype) == (scores.shape, torch.float32)
    assert (value.shape, value.dtype) == ((2, 3), torch.float32)
    torch.testing.assert_close(mean[1, 2], marginals(tree, scores[1, 2].double()).float())
    strided = random(5, 4, 2, rng=rng).permute(*reversed(range(3)))
    torch.testing.assert_close(marginals(tree, strided), marginals(tree, strided.contiguous()))
    for function in (marginals, log_partition):
        assert function(tree, scores[:0]).shape[0] == 0
    assert tree.argmax(scores[:0]).shape == (0, 3, 4, 5)


@trees
def test_score(tree, backend, rng):
    scores = random(2, 4, 5, rng=rng).requires_grad_()
    heads = torch.tensor([[2, 0, 2, 3], [0, 1, 99, -7]])
    value = tree.score(scores, heads, lengths=torch.tensor([4, 2]))
    s = scores.detach()
    first = s[0, 0, 2] + s[0, 1, 0] + s[0, 2, 2] + s[0, 3, 3]
    torch.testing.assert_close(value.detach(), torch.stack((first, s[1, 0, 0] + s[1, 1, 1])))
    (grad,) = torch.autograd.grad(value.sum(), scores)
    assert float(grad.sum()) == 6.0


@trees
def test_samples(tree, rng):
    scores = random(2, 3, 4, rng=rng)
    scores[0, 1, 0] = -math.inf
    lengths = torch.tensor([3, 2])
    problem = tree.problem("test", scores, lengths)
    parts = tree.sample_parts(problem, 4000, 0.7, rng)
    assert parts.shape == (4000, 2, 3)
    assert bool((parts[:, 1, 2] == -1).all())
    again = tree.sample_parts(problem, 5, 0.7, torch.Generator().manual_seed(3))
    assert torch.equal(again, tree.sample_parts(problem, 5, 0.7, torch.Generator().manual_seed(3)))
    members = {tuple(member): i for i, member in enumerate(members_of(tree, 3, 3 + 1))}
    values = torch.stack([problem.scores[0, list(member)].sum() for member in members]) / 0.7
    found = torch.bincount(
        torch.tensor([members[tuple(row)] for row in parts[:, 0].tolist()]), minlength=len(members)
    )
    p = values.softmax(0)
    error = (found / 4000 - p).abs() / (p * (1 - p) / 4000 + 1e-12).sqrt()
    assert float(error.max()) < 4.5
    counts = torch.stack([problem.indicator(rows) for rows in parts]).mean(0)
    # Five standard deviations of a mean of 4000 draws: 5 · 0.5 / √4000.
    torch.testing.assert_close(
        counts, tree.smoothed_argmax(problem, "entropy", 0.7), atol=0.04, rtol=0
    )


def test_training_with_a_hundred_words(rng):
    scores = random(4, 100, 101, rng=rng, dtype=torch.float32).requires_grad_()
    heads = torch.arange(100).expand(4, 100)
    tree = DependencyTree()
    losses = []
    for _ in range(8):
        loss = (log_partition(tree, scores) - tree.score(scores, heads)).mean()
        (grad,) = torch.autograd.grad(loss, scores)
        scores = (scores - 4 * grad).detach().requires_grad_()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    assert losses == sorted(losses, reverse=True)


def test_repr():
    assert repr(DependencyTree()) == "DependencyTree(single_root=True, projective=False)"
    assert eval(repr(TREES[3]), {"DependencyTree": DependencyTree}).projective is True
