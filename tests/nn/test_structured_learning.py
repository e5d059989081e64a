"""Do they learn? Models with a structured layer or loss on generated data, against the truth."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy


def train(parameters, loss, steps, rate=0.1):
    """Adam, and the losses on the way."""
    optimizer = torch.optim.Adam(list(parameters), lr=rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


@pytest.mark.parametrize("omega", ["sparsemap", "marginals", "smoothed_dp"])
def test_an_alignment_is_found_without_being_shown(omega):
    """Each row of a copy is a row of the original, some repeated, in other coordinates.

    Only the reconstruction is trained: what is aligned with what stays hidden.
    """
    rng = torch.Generator().manual_seed(0)
    n, m, size, count = 5, 8, 4, 24
    original = torch.randn(count, n, size, generator=rng)
    turn = torch.linalg.qr(torch.randn(size, size, generator=rng)).Q
    steps = torch.stack([torch.randperm(m - 1, generator=rng)[: n - 1] for _ in range(count)])
    jumps = torch.zeros(count, m, dtype=torch.int64).scatter(1, steps + 1, 1)
    hidden = jumps.cumsum(1)  # the row of the original behind each row of the copy
    copy = original.gather(1, hidden.unsqueeze(-1).expand(-1, -1, size)) @ turn
    guess = torch.nn.Parameter(torch.eye(size) + 0.3 * torch.randn(size, size, generator=rng))
    layer = fy.nn.AlignmentLayer(omega, 0.5)

    def scores():
        return -(copy.unsqueeze(2) - (original @ guess).unsqueeze(1)).square().sum(-1)

    def loss():
        aligned = layer(scores())
        weights = aligned / aligned.sum(-1, keepdim=True)
        return (weights @ (original @ guess) - copy).square().mean()

    def right():
        with torch.no_grad():
            return float((layer(scores()).argmax(-1) == hidden).float().mean())

    before = right()
    losses = train([guess], loss, 150, 0.05)
    assert losses[-1] < 0.1 * losses[0]
    assert before < 0.8 and right() > 0.95, (before, right())


@pytest.mark.parametrize("omega", ["sparsemap", "marginals", "smoothed_dp"])
def test_a_tagger_that_knows_neighbours_is_better(omega):
    """Tags follow one another around a circle of four; the words say which two it may be."""
    rng = torch.Generator().manual_seed(1)
    k, length, count = 4, 9, 80
    first = torch.randint(k, (count, 1), generator=rng)
    moves = (torch.rand(count, length - 1, generator=rng) < 0.05).long() + 1
    tags = torch.cat([first, moves], 1).cumsum(1) % k
    noise = torch.randn(count, length, 4, generator=rng)
    words = torch.nn.functional.one_hot(tags // 2, 4).float() * 2 + noise

    def accuracy(chain):
        reader = torch.nn.Linear(4, k)
        torch.nn.init.zeros_(reader.weight)
        torch.nn.init.zeros_(reader.bias)
        if chain is None:
            rows = fy.SparseMAP(fy.OneOf())
            train(
                reader.parameters(),
                lambda: fy.fenchel_young_loss(reader(words[:50]), tags[:50], rows),
                60,
            )
            found = reader(words[50:]).argmax(-1)
        else:
            both = [*reader.parameters(), *chain.parameters()]
            train(both, lambda: chain.loss(reader(words[:50]), tags[:50]), 60)
            best = fy.MAP(fy.Sequence(k))
            found = best.predict(chain._scores(reader(words[50:]))).emissions.argmax(-1)
        return float((found == tags[50:]).float().mean())

    alone, together = accuracy(None), accuracy(fy.nn.LinearChain(k, omega))
    assert together > alone + 0.15, (alone, together)
    assert together > 0.7, together


@pytest.mark.parametrize("make", [fy.SparseMAP, fy.Marginals, fy.MAP])
@pytest.mark.parametrize("projective", [False, True])
def test_a_parser(make, projective):
    """Heads are the best tree of a bilinear score; the parser must find the score."""
    rng = torch.Generator().manual_seed(2)
    n, size, count = 5, 4, 60
    structure = fy.DependencyTree(projective=projective)
    words = torch.randn(count, n + 1, size, generator=rng)
    truth = torch.randn(size, size, generator=rng)

    def arcs(weight):
        return words[:, 1:] @ weight @ words.transpose(1, 2)

    heads = structure.argmax(arcs(truth)).argmax(-1)
    weight = torch.nn.Parameter(torch.zeros(size, size))
    loss = fy.nn.FenchelYoungLoss(make(structure), cost=1.0 if make is fy.MAP else None)
    losses = train([weight], lambda: loss(arcs(weight)[:40], heads[:40]), 60)
    assert losses[-1] < 0.35 * losses[0]
    found = structure.argmax(arcs(weight.detach())).argmax(-1)
    right = (found == heads)[40:].float().mean()
    assert right > 0.85, float(right)


def test_sorting_is_learned_through_a_matching():
    """A layer that puts numbers in places is trained on sorted lists, not on the permutation."""
    rng = torch.Generator().manual_seed(3)
    x = torch.rand(64, 5, generator=rng)
    wanted = x.sort(1, descending=True).values
    score = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
    for p in score.parameters():
        torch.nn.init.normal_(p, std=0.5, generator=rng)
    layer = fy.nn.MatchingLayer(gamma=0.5)

    def placed(rows, how):
        return (how(score(rows.unsqueeze(-1))).transpose(1, 2) @ rows.unsqueeze(-1)).squeeze(-1)

    def off(rows):
        with torch.no_grad():
            best = placed(rows, fy.nn.MatchingLayer("map"))
            return float((best - rows.sort(1, descending=True).values).abs().mean())

    new = torch.rand(64, 5, generator=rng)
    before = off(new)
    losses = train(
        score.parameters(), lambda: (placed(x, layer) - wanted).square().mean(), 120, 0.05
    )
    assert losses[-1] < 0.1 * losses[0]
    assert off(new) < 0.05 < 0.15 < before, (before, off(new))
