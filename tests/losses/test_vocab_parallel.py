"""`fy.vocab_parallel_entmax_loss` is `fy.linear_entmax_loss`, in 2 and in 4 processes."""

from __future__ import annotations

import pytest

import fenchel as fy
from tests.losses.linear_cases import make
from tests.losses.vocab_parallel_run import run_checks

CHECKS = [
    "alphas_and_dtypes",
    "rows_from_sums",
    "several_chunks",
    "uneven_shards",
    "ignored_rows",
    "learned_alpha",
    "masked_and_broken",
    "ties_and_far_targets",
    "half_precision",
    "plain_torch",
    "dtensors",
    "shards_of_one_layer",
    "any_order_of_shards",
    "bytes_on_the_wire",
    "errors",
    "errors_of_dtensors",
]
RUNS = {2: CHECKS, 4: [*CHECKS, "two_by_two"]}


@pytest.fixture(scope="module", params=RUNS)
def ranks(request):
    return request.param


@pytest.fixture(scope="module")
def heard(ranks):
    return run_checks("tests.losses.vocab_parallel_checks", RUNS[ranks], ranks)


@pytest.mark.parametrize("check", RUNS[4])
def test_on_every_rank(check, ranks, heard):
    if check not in RUNS[ranks]:
        pytest.skip("for four ranks")
    assert not heard[check], "\n".join(heard[check])


def test_needs_a_process_group(rng):
    hidden, weight, _, target = make(4, 8, 5, rng)
    with pytest.raises(fy.FenchelError, match="expected a process group; call torch.distributed"):
        fy.vocab_parallel_entmax_loss(hidden, weight, target)
    with pytest.raises(fy.FenchelError, match="expected a process group; call torch.distributed"):
        fy.nn.VocabParallelEntmaxLoss(5, 8)
