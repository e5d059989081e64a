"""A model with explicit next-token distributions, all of whose strings can be listed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BOS, EOS = 1, 2


@dataclass
class AutomatonStep:
    probabilities: Tensor
    state: AutomatonState
    attention: Tensor | None


@dataclass
class AutomatonState:
    nodes: Tensor  # (n,)
    source: Tensor  # (n, S)

    def select(self, index: Tensor) -> AutomatonState:
        return AutomatonState(self.nodes[index], self.source[index])


class Automaton:
    """``table[k, q]`` is the distribution of the next token in state q for sources that begin with
    k, and ``move[q, token]`` the state after it. The attention is on the state's number."""

    def __init__(self, table: Tensor, move: Tensor, attends: bool = True) -> None:
        self.table, self.move, self.attends = table, move, attends
        self.rows = 0

    def start(self, source: Tensor, source_lengths: Tensor) -> AutomatonState:
        return AutomatonState(torch.full((source.shape[0],), -1), source)

    def step(self, state: AutomatonState, tokens: Tensor) -> AutomatonStep:
        first = state.nodes < 0
        assert bool(((tokens == BOS) == first).all()), "BOS is fed first, and only then"
        nodes = torch.where(first, 0, self.move[state.nodes, tokens])
        self.rows += len(tokens)
        probabilities = self.table[state.source[:, 0], nodes]
        attention = None
        if self.attends:
            attention = torch.nn.functional.one_hot(
                nodes % state.source.shape[1], state.source.shape[1]
            ).float()
        return AutomatonStep(probabilities, AutomatonState(nodes, state.source), attention)

    def strings(self, source: int = 0, deepest: int = 60) -> dict[tuple[int, ...], float]:
        """Every string with p > 0 of at most ``deepest`` tokens, and its log-probability."""
        found: dict[tuple[int, ...], float] = {}
        table = self.table.double().tolist()
        todo: list[tuple[tuple[int, ...], int, float]] = [((), 0, 0.0)]
        while todo:
            prefix, node, log_p = todo.pop()
            for token, p in enumerate(table[source][node]):
                if p > 0 and token == EOS:
                    found[prefix] = log_p + math.log(p)
                elif p > 0 and len(prefix) < deepest:
                    following = int(self.move[node, token])
                    todo.append(((*prefix, token), following, log_p + math.log(p)))
        return found


def automaton(
    seed: int,
    *,
    vocabulary: int = 8,
    nodes: int = 6,
    sources: int = 1,
    widest: int = 3,
    acyclic: bool = True,
    attends: bool = True,
) -> Automaton:
    """A random automaton with 1 to ``widest`` tokens a state. An acyclic one ends in at most
    ``nodes`` - 1 tokens; a cyclic one can go on."""
    rng = torch.Generator().manual_seed(seed)
    table = torch.zeros(sources, nodes, vocabulary)
    for k in range(sources):
        for q in range(nodes):
            if acyclic and q == nodes - 1:
                table[k, q, EOS] = 1.0
                continue
            size = int(torch.randint(1, widest + 1, (), generator=rng))
            # PAD and BOS are never an output.
            tokens = 2 + torch.randperm(vocabulary - 2, generator=rng)[:size]
            weights = torch.randint(1, 9, (size,), generator=rng).float()
            table[k, q, tokens] = weights / weights.sum()
    move = torch.empty(nodes, vocabulary, dtype=torch.int64)
    for q in range(nodes):
        low = min(q + 1, nodes - 1) if acyclic else 0
        move[q] = torch.randint(low, nodes, (vocabulary,), generator=rng)
    return Automaton(table, move, attends)


def sources(*kinds: int, width: int = 3) -> tuple[Tensor, Tensor]:
    """Sources that begin with ``kinds``, and their lengths."""
    source = torch.tensor([[kind] + [0] * (width - 1) for kind in kinds or (0,)])
    return source, torch.full((source.shape[0],), width)


def dense(seed: int, *, vocabulary: int = 5, nodes: int = 3) -> Automaton:
    """An automaton without zeros, except that PAD and BOS are never an output."""
    made = automaton(seed, vocabulary=vocabulary, nodes=nodes, acyclic=False)
    scores = torch.randn(1, nodes, vocabulary, generator=torch.Generator().manual_seed(seed))
    scores[..., :EOS] = -math.inf
    made.table = scores.softmax(-1)
    return made


def ranked(
    truth: dict[tuple[int, ...], float], penalty: float = 0.0
) -> list[tuple[float, tuple[int, ...]]]:
    """Scores and strings, the best first."""
    scores = {tokens: log_p / ((5 + len(tokens)) / 6) ** penalty for tokens, log_p in truth.items()}
    return sorted(((score, tokens) for tokens, score in scores.items()), reverse=True)
