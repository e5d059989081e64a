"""What holds for every structure, and the check that a user's own can be held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.regularizers import MAP, Marginals, SmoothedDP, SparseMAP, StructuredRegularizer
from fenchel.structures import Structure
from fenchel.testing._cases import Recursion, StructureCase, blocks, case_of, counts, scores_of
from fenchel.testing._edges import has_a_clear_best
from fenchel.testing._failure import Check, CheckFailed, close, expect, run, same, sentence_of
from fenchel.testing._structured import PROPERTIES

CHECKS: list[tuple[Check, Callable[[StructureCase], bool]]] = []


def holds(
    when: Callable[[StructureCase], bool] = lambda case: True,
) -> Callable[[Check], Check]:
    """Enter the decorated check into the list."""

    def enter(check: Check) -> Check:
        CHECKS.append((check, when))
        return check

    return enter


def is_listed(case: StructureCase) -> bool:
    return case.can_be_listed


def can(case: StructureCase, method: str) -> bool:
    """Whether a structure has one of the methods that not all can have."""
    problem, structure = case.problem, case.structure
    try:
        if method == "sample":
            structure.sample_parts(problem, 1, 1.0, torch.Generator().manual_seed(0))
        else:
            structure.k_best_parts(problem, 1)
    except FenchelError as error:
        if "is not implemented for this structure" in str(error):
            return False
        raise
    return True


def rows_of(case: StructureCase, scores: Tensor) -> Tensor:
    """The best members (instances, parts) for other scores of the case."""
    problem = case.problem
    return problem.indicator(case.structure.best_parts(problem, scores))


def other_scores(case: StructureCase, count: int) -> Iterator[Tensor]:
    """Random scores with the masks of the case."""
    scores, rng = case.problem.scores.detach(), torch.Generator().manual_seed(13)
    for _ in range(count):
        drawn = torch.randn(scores.shape, generator=rng, dtype=torch.float64)
        yield torch.where(scores == -math.inf, -math.inf, drawn)


# ------------------------------------------------------------------------------------ properties


@holds(is_listed)
def members_are_different_and_leave_padding_alone(case: StructureCase) -> None:
    problem = case.problem
    off = case.padding()
    shape = [x if at is None else at for at, x in zip(off, blocks(case.scores), strict=True)]
    flat = None
    if all(at is not None for at in off):
        flat = case.flat([at.double() for at in shape]) > 0
    for row in range(len(problem.scores)):
        members = counts(case.structure, problem, row)
        n = len(members.unique(dim=0))
        expect(
            n == len(members),
            f"expected different members of instance {row}, but {len(members)} are {n} different",
        )
        if flat is not None and bool(flat[row].any()):
            used = (members[:, flat[row]] != 0).any()
            expect(not used, f"expected no member of instance {row} with a part on padding")


@holds()
def the_best_beats_every_other_answer(case: StructureCase) -> None:
    scores = case.problem.scores.detach()
    best = scores_of(rows_of(case, scores), scores)
    for drawn in other_scores(case, 20):
        other = scores_of(rows_of(case, drawn), scores)
        bad = other > best + 1e-9 * (1 + best.abs())
        if bool(bad.any()):
            row = int(bad.long().argmax())
            raise CheckFailed(
                f"expected the best structure of instance {row}, but `argmax` returned one with a "
                f"score of {float(best[row]):.9g}, and for other scores one with "
                f"{float(other[row]):.9g}"
            )


@holds()
def the_same_scores_have_the_same_best(case: StructureCase) -> None:
    scores = case.problem.scores.detach()
    for x in (scores, torch.where(scores == -math.inf, scores, 0.0)):  # the second is all ties
        same(rows_of(case, x), rows_of(case, x.clone()), "the best structure")


@holds(lambda case: has_a_clear_best(MAP(case.structure), case))
def an_instance_does_not_depend_on_its_batch(case: StructureCase) -> None:
    problem = case.problem
    whole = problem.restore(problem.scores)  # with the mask in it
    best = blocks(MAP(case.structure).predict(whole, lengths=case.lengths))
    for row in range(len(problem.scores)):
        alone = case.structure.instance(whole, problem, row)
        for got, full in zip(blocks(MAP(case.structure).predict(alone)), best, strict=True):
            one = full.reshape(-1, *full.shape[len(case.batch_shape) :])[row]
            cut = one[tuple(slice(size) for size in got.shape)]
            same(got, cut, f"the best structure of instance {row} alone")


@holds()
def targets_are_read_back(case: StructureCase) -> None:
    problem = case.problem
    for seed in range(3):
        target, members = case.targets(seed)
        parts = case.structure.target_parts("check", problem, target)
        same(problem.indicator(parts), members, "the member behind a target, counts of")


@holds(lambda case: case.can_be_listed and can(case, "k_best"))
def the_k_best_are_the_first_of_all(case: StructureCase) -> None:
    k = 5
    for gamma in (1.0, 0.25):
        omega = Marginals(case.structure, gamma)
        found, logs = omega.k_best(case.scores, k, **case.sizes)
        expect(len(found) == k, f"expected {k} structures, but got {len(found)}")
        expect(
            logs.shape == (*case.batch_shape, k),
            f"expected log-probabilities for {k} structures, but got shape {tuple(logs.shape)}",
        )
        rows = [case.flat(mean) for mean in found]
        for at, (members, p) in enumerate(probabilities(case, gamma)):
            best, got = p.sort(descending=True).values[:k].log(), logs.reshape(-1, k)[at]
            close(got[: len(best)], best, what=f"log-probabilities of the best of instance {at}")
            expect(got[len(best) :] == -math.inf, "expected -inf where there are fewer than k")
            for rank in range(k):
                mean = rows[rank][at]
                if rank >= len(best):
                    same(mean, torch.zeros_like(mean), "no structure where there are fewer than k,")
                    continue
                places = (members == mean).all(1).nonzero().flatten()
                expect(len(places) == 1, f"expected a member as number {rank}, but it is none")
                close(p[places[0]].log(), got[rank], what=f"the log-probability of number {rank}")
            kinds = {tuple(row[at].tolist()) for row in rows[: len(best)]}
            expect(len(kinds) == len(best), "expected different structures, but some are the same")


@holds(lambda case: case.can_be_listed and can(case, "sample"))
def samples_have_the_frequencies_of_their_probabilities(case: StructureCase) -> None:
    gamma, n = 0.8, 400
    omega = Marginals(case.structure, gamma)
    drawn = omega.sample(case.scores, n, **case.sizes, generator=torch.Generator().manual_seed(3))
    expect(len(drawn) == n, f"expected {n} samples, but got {len(drawn)}")
    flat = torch.stack([case.flat(x) for x in drawn])
    for at, (members, p) in enumerate(probabilities(case, gamma)):
        hits = (flat[:, at, None] == members).all(-1)
        expect(hits.sum(1) == 1, f"expected members of instance {at} only, but one sample is none")
        off = (hits.double().mean(0) - p).abs() - 5 * (p * (1 - p) / n).sqrt()
        worst = int(off.argmax())
        expect(
            off <= 1e-9,
            f"expected member {worst} of instance {at} in {float(p[worst]):.3f} of {n} samples, "
            f"but got {float(hits.double().mean(0)[worst]):.3f}",
        )
    means = case.flat(omega.predict(case.scores, **case.sizes))
    off = (flat.mean(0) - means).abs().amax() - 5 * 1.5 / math.sqrt(n)
    expect(off < 0, "expected samples around the mean, but they are not")


def probabilities(case: StructureCase, gamma: float) -> Iterator[tuple[Tensor, Tensor]]:
    """All members of each instance, with their probabilities."""
    for members, row in zip(case.members(), case.problem.scores, strict=True):
        yield members, (scores_of(members, row) / gamma).softmax(0)


# --------------------------------------------------------------------------------------- for users


def regularizers_of(structure: Structure) -> list[StructuredRegularizer]:
    """Every Ω that a structure has, once."""
    found: list[StructuredRegularizer] = [MAP(structure), SparseMAP(structure, 0.4)]
    if "entropy" in structure.smoothings:
        found.append(Marginals(structure, 0.7))
    if "l2" in structure.smoothings:
        found += [SmoothedDP(structure, "entropy", 0.6), SmoothedDP(structure, "l2", 0.8)]
    return found


def check_structure(
    structure: Structure,
    scores: Any,
    *,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    l2_max: Recursion | None = None,
) -> list[str]:
    """Hold a structure to all that the library's own structures are held to.

    Its oracle, its targets and its members are checked first; then every Ω that it has
    (:class:`fenchel.MAP`, :class:`fenchel.SparseMAP`, and by its ``smoothings``
    :class:`fenchel.Marginals` and :class:`fenchel.SmoothedDP`): values, losses, gradients of first
    and second order, padding, masks, dtypes, empty batches. If the structure has ``enumerate``,
    answers are compared with those of all members, so instances should be small: some hundred
    members. Without it, the checks that need them are left out.

    Args:
        structure: what to check.
        scores: a batch of instances, float64 and finite, without ties.
        lengths: sizes of the instances, if the structure has them; then padding is checked too.
        mask: boolean, True where a part may be used.
        l2_max: for a structure with the smoothing ``"l2"``: its smoothed maximum by another
            program, ``l2_max(problem, scores, row, gamma)``, where the scores (parts,) are those of
            instance ``row``.

    Returns:
        What was checked, in words.

    Raises:
        CheckFailed: an AssertionError that names the property, what was expected and what came.

    Example:
        >>> from fenchel.testing import check_structure
        >>> scores = torch.tensor([[0.3, -1.2, 0.8, 0.1]], dtype=torch.float64)
        >>> checked = check_structure(fy.KSubsets(2), scores)
        >>> len(checked) > 40, checked[0]
        (True, 'KSubsets(2): members are different and leave padding alone')
    """
    case = case_of(structure, scores, lengths, mask, l2_max)
    done = []
    for check, applies in CHECKS:
        if applies(case):
            run(repr(structure), check, case)
            done.append(f"{structure!r}: {sentence_of(check)}")
    for omega in regularizers_of(structure):
        done += check_structured(omega, case)
    return done


def check_structured(omega: StructuredRegularizer, case: StructureCase) -> list[str]:
    """Run every property of an Ω on a case that applies."""
    done = []
    for each in PROPERTIES:
        if each.applies(omega, case):
            run(repr(omega), each.check, omega, case)
            done.append(f"{omega!r}: {sentence_of(each.check)}")
    return done
