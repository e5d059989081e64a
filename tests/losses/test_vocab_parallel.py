"""`fy.vocab_parallel_entmax_loss` is `fy.linear_entmax_loss`, in 2 and in 4 processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import fenchel as fy
from tests.losses.linear_cases import make
from tests.processes import run_checks

pytestmark = pytest.mark.xdist_group(
    "vocab_parallel"
)  # one worker: what they share takes long to make

MODULES = ("tests.losses.vocab_parallel_checks", "tests.losses.vocab_parallel_groups")
RUNS = {
    2: [
        "alphas_and_dtypes",
        "rows_from_sums",
        "several_chunks",
        "uneven_shards",
        "ignored_rows",
        "learned_alpha",
        "smoothed_targets",
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
    ],
    4: [
        "alphas_and_dtypes",
        "rows_from_sums",
        "uneven_shards",
        "ignored_rows",
        "learned_alpha",
        "smoothed_targets",
        "masked_and_broken",
        "two_by_two",
        "dtensors",
        "any_order_of_shards",
        "bytes_on_the_wire",
        "errors",
    ],
}


@pytest.fixture(scope="module")
def heard():
    """What the ranks said, by their number; they run when they are first asked for."""
    said = {}

    def ask(ranks):
        if ranks not in said:
            said[ranks] = run_checks(MODULES, RUNS[ranks], ranks)
        return said[ranks]

    return ask


@pytest.mark.parametrize(
    ("ranks", "check"), [(ranks, check) for ranks in RUNS for check in RUNS[ranks]]
)
def test_on_every_rank(ranks, check, heard):
    errors = heard(ranks)[check]
    assert not errors, "\n".join(errors)


def test_needs_a_process_group(rng):
    hidden, weight, _, target = make(4, 8, 5, rng)
    with pytest.raises(fy.FenchelError, match="expected a process group; call torch"):
        fy.vocab_parallel_entmax_loss(hidden, weight, target)
    with pytest.raises(fy.FenchelError, match="expected a process group; call torch"):
        fy.nn.VocabParallelEntmaxLoss(5, 8)


@pytest.fixture
def one_rank(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's, at graph breaks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_rank_and_a_compiled_model(one_rank, rng):
    hidden, weight, bias, target = make(20, 60, 5, rng)

    def model(layer):
        return layer(hidden.tanh(), weight, target, bias=bias) * 2

    leaves = [hidden, weight, bias]
    wanted = torch.autograd.grad(model(fy.linear_entmax_loss), leaves)
    for run in (model, torch.compile(model, backend="eager")):
        got = torch.autograd.grad(run(fy.vocab_parallel_entmax_loss), leaves)
        for mine, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-12)
