"""`fy.linear_entmax_loss`: sparse gradients, memory, half precision, compilers, threads, errors."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fenchel as fy
from fenchel.losses import _linear_engine as engine
from tests.losses.linear_cases import ALPHAS, composed, gradients, make

alphas = pytest.mark.parametrize("alpha", ALPHAS)
compiled = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of itself


class LargestTensor(TorchDispatchMode):
    """Remembers the most entries that an op's result held in memory."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.layout == torch.strided:
                held = x.untyped_storage().nbytes() // x.itemsize
                self.entries = max(self.entries, held)
        return result


# -- sparse gradients --------------------------------------------------------


@alphas
def test_sparse_grad_is_the_dense_one(alpha, backend, rng):
    hidden, weight, bias, target = make(13, 50, 5, rng, scale=2.0, ignored=-100)
    inputs = (hidden, weight, bias)
    dense = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias)
    sparse = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias, sparse_grad=True)
    assert torch.equal(dense, sparse)
    wanted, got = torch.autograd.grad(dense, inputs), torch.autograd.grad(sparse, inputs)
    assert got[1].layout == torch.sparse_coo
    assert got[1].is_coalesced()
    assert got[1].shape == weight.shape
    named = got[1].indices()[0]
    assert (named.diff() > 0).all()
    checked = torch.sparse_coo_tensor(
        got[1].indices(), got[1].values(), weight.shape, check_invariants=True
    )
    got = (got[0], checked.to_dense(), got[2])
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    if 1 < alpha:
        assert len(named) < 50


def test_sparse_grad_names_only_supported_rows(backend):
    hidden = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    weight = torch.tensor([[5.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [4.9, 0.0]], requires_grad=True)
    loss = fy.linear_entmax_loss(hidden, weight, torch.tensor([0, 2]), 2.0, sparse_grad=True)
    (grad,) = torch.autograd.grad(loss, weight)
    assert grad.indices().tolist() == [[0, 2, 3]]
    learned = fy.linear_entmax_loss(hidden * 100, weight, torch.tensor([0, 0]), sparse_grad=True)
    (grad,) = torch.autograd.grad(learned, weight)
    assert learned == 0
    assert grad._nnz() == 0


def test_sparse_adam_steps(backend, rng):
    hidden, weight, bias, target = make(20, 60, 5, rng, dtype=torch.float32, scale=3.0)
    loss = fy.linear_entmax_loss(hidden, weight, target, bias=bias, sparse_grad=True)
    before = weight.detach().clone()
    optimizer = torch.optim.SparseAdam([weight], lr=0.1)
    loss.backward()
    touched = weight.grad.coalesce().indices()[0]  # torch forgets that it is coalesced
    optimizer.step()
    moved = (weight.detach() != before).any(1).nonzero()[:, 0]
    assert set(moved.tolist()) <= set(touched.tolist())
    assert len(moved) > 0
    after = fy.linear_entmax_loss(hidden, weight, target, bias=bias)
    assert after < loss


# -- memory ------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("trained", [False, True])
def test_nothing_of_size_rows_times_classes(smoothing, trained, rng):
    rows, classes, d = 1024, 1500, 4
    hidden, weight, bias, target = make(rows, classes, d, rng, dtype=torch.float32)
    hidden.data *= 20.0 if trained else 0.01  # few nonzeros, or nearly all
    with LargestTensor() as watched:
        composed(hidden, weight, target, bias=bias).backward()
    assert watched.entries >= rows * classes  # the watch works
    with LargestTensor() as watched:
        loss = fy.linear_entmax_loss(hidden, weight, target, bias=bias, label_smoothing=smoothing)
        loss.backward()
    assert watched.entries <= engine.CHUNK * classes  # the buffer


def test_few_rows_save_memory_too():
    assert [engine.chunk_size(n) for n in (1, 100, 300, 1000, 5000)] == [128, 128, 150, 500, 512]


def test_a_trained_model_keeps_only_nonzeros(backend, rng):
    hidden, weight, _, target = make(300, 2000, 4, rng, scale=30.0)
    a = torch.tensor([1.5], dtype=torch.float64)
    with torch.no_grad():
        *_, lists, dense = engine.forward(hidden, weight, None, target, a, True, False, True)
    assert not dense.any()
    assert lists.values.numel() < 300 * 20


# -- dtypes ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_half(dtype, share, alpha, backend, monkeypatch, rng):
    monkeypatch.setattr(engine, "DENSE_SHARE", share)
    hidden, weight, bias, target = make(150, 40, 16, rng, dtype=dtype, scale=0.5, ignored=-100)
    inputs = (hidden, weight, bias)
    loss = fy.linear_entmax_loss(hidden, weight, target, alpha, bias=bias)
    assert loss.dtype == dtype
    wide = [x.detach().double().requires_grad_() for x in inputs]
    truth = composed(wide[0], wide[1], target, alpha, bias=wide[2])
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(loss.double(), truth, atol=0, rtol=tolerance)
    wanted = torch.autograd.grad(truth, wide)
    for mine, theirs in zip(torch.autograd.grad(loss, inputs), wanted, strict=True):
        assert mine.dtype == dtype
        # Logits of size 4 are rounded to half, as F.linear does, and p moves by that rounding.
        allowed = 4 * torch.finfo(dtype).eps * theirs.abs().max().item()
        torch.testing.assert_close(mine.double(), theirs, atol=allowed, rtol=tolerance)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("half_hidden", [False, True])
def test_autocast(smoothing, half_hidden, backend, rng):
    hidden, weight, bias, target = make(20, 40, 16, rng, dtype=torch.float32, scale=0.5)
    given = hidden.bfloat16() if half_hidden else hidden
    inputs = (hidden, weight, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fy.linear_entmax_loss(given, weight, target, bias=bias, label_smoothing=smoothing)
        wanted = composed(given, weight, target, bias=bias, label_smoothing=smoothing)
    assert got.dtype == wanted.dtype == torch.float32
    torch.testing.assert_close(got, wanted, atol=1e-2, rtol=1e-2)
    for mine, theirs in zip(gradients(got, inputs), gradients(wanted, inputs), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, atol=2e-2 * theirs.abs().max().item(), rtol=1e-2)


def test_autocast_leaves_float64_alone(backend, rng):
    hidden, weight, _, target = make(20, 40, 16, rng)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fy.linear_entmax_loss(hidden, weight, target)
    assert torch.equal(got, fy.linear_entmax_loss(hidden, weight, target))
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(fy.FenchelError, match="of one dtype on one device"),
    ):
        fy.linear_entmax_loss(hidden, weight.float(), target)


# -- compilers and transforms ------------------------------------------------


def assert_compiles(function, inputs, **kwargs):
    torch._dynamo.reset()
    wanted, got = function(*inputs), torch.compile(function, fullgraph=True, **kwargs)(*inputs)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(
        gradients(got, inputs), gradients(wanted, inputs), atol=1e-12, rtol=1e-12
    )


OPTIONS = {
    "plain": {},
    "weighted": {"class_weight": torch.linspace(0.5, 2, 9).double(), "reduction": "none"},
    "smoothed": {"label_smoothing": 0.1, "reduction": "sum"},
}


@compiled
@pytest.mark.parametrize("options", OPTIONS)
def test_compile_aot_eager(options, backend, rng):
    hidden, weight, bias, target = make((3, 4), 9, 5, rng, ignored=-100)
    alpha = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)

    def f(h, w, b, a):
        return fy.linear_entmax_loss(h, w, target, a, bias=b, **OPTIONS[options])

    assert_compiles(f, (hidden, weight, bias, alpha), backend="aot_eager")


@compiled
def test_compile_inductor_with_turned_weights(rng):
    hidden, weight, _, target = make(12, 9, 5, rng)
    turned = weight.detach().t().contiguous().t().requires_grad_()
    other = hidden.detach().t().contiguous().t().requires_grad_()
    with torch._inductor.utils.fresh_cache():
        assert_compiles(lambda h, w: fy.linear_entmax_loss(h, w, target), (other, turned))


@pytest.mark.parametrize("with_slope", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@compiled
def test_opcheck(with_slope, dtype, backend, rng):
    hidden, weight, bias, target = make(5, 9, 4, rng, dtype=dtype)
    alpha = torch.tensor([1.5], requires_grad=with_slope)
    arguments = (hidden, weight, bias, target, alpha, True, with_slope, False)
    torch.library.opcheck(torch.ops.fenchel.linear_entmax_loss, arguments)


def test_a_second_derivative_is_refused(backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    loss = fy.linear_entmax_loss(hidden, weight, target)
    with pytest.raises(fy.FenchelError, match=r"expected no second derivative; use `fy.entmax_l"):
        torch.autograd.grad(loss, hidden, create_graph=True)


TRANSFORMS = {
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, x])),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "hessian": lambda f, x: torch.func.hessian(f)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_refused(name, backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)

    def f(h):
        return fy.linear_entmax_loss(h, weight.detach(), target)

    with pytest.raises(fy.FenchelError, match=r"expected no torch\.func and no forward mode"):
        TRANSFORMS[name](f, hidden.detach())


def test_forward_mode_is_refused(backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(hidden.detach(), hidden.detach())
        with pytest.raises(fy.FenchelError, match="no forward mode"):
            fy.linear_entmax_loss(dual, weight, target)


def test_vmap_of_the_registered_op_is_refused(backend, rng):
    hidden, weight, _, target = make((2, 5), 9, 4, rng)
    op, alpha = torch.ops.fenchel.linear_entmax_loss, torch.tensor([1.5])
    with pytest.raises(fy.FenchelError, match=r"expected no torch\.func\.vmap"):
        torch.func.vmap(lambda h, y: op(h, weight, None, y, alpha, False, False, False))(
            hidden, target
        )


def test_backward_twice_and_in_place(backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    loss = fy.linear_entmax_loss(hidden, weight, target)
    first = torch.autograd.grad(loss, weight, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(loss, weight)[0])
    loss = fy.linear_entmax_loss(hidden, weight, target)
    with torch.no_grad():
        weight.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# -- batches and threads -----------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lead", [(0,), (3, 0), (0, 2)], ids=str)
def test_empty_batch(reduction, smoothing, lead, backend, rng):
    hidden, weight, bias, target = make(lead, 9, 4, rng)
    kwargs = {"reduction": reduction, "label_smoothing": smoothing}
    loss = fy.linear_entmax_loss(hidden, weight, target, bias=bias, **kwargs)
    wanted = F.cross_entropy(torch.zeros(0, 9), torch.zeros(0).long(), reduction=reduction)
    if reduction == "none":
        assert loss.shape == lead
    else:
        torch.testing.assert_close(loss, wanted.double(), equal_nan=True)
    if reduction == "sum":
        got = torch.autograd.grad(loss, (hidden, weight, bias))
        assert all((g == 0).all() for g in got)
    sparse = fy.linear_entmax_loss(hidden, weight, target, sparse_grad=True, reduction="sum")
    assert torch.autograd.grad(sparse, weight)[0]._nnz() == 0
    with torch.no_grad():
        assert fy.linear_entmax_loss(hidden, weight, target, reduction="sum") == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_ignored(smoothing, backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    target[:] = -100
    with pytest.warns(UserWarning, match=r"linear_entmax_loss: every target is `ignore_index`"):
        loss = fy.linear_entmax_loss(hidden, weight, target, label_smoothing=smoothing)
    assert loss.isnan()
    total = fy.linear_entmax_loss(
        hidden, weight, target, reduction="sum", label_smoothing=smoothing
    )
    assert total == 0
    for grad in torch.autograd.grad(total, (hidden, weight)):
        assert (grad == 0).all()


@alphas
def test_a_row_does_not_depend_on_its_batch(alpha, backend, rng):
    """Up to the order of the product's sums, which is torch's."""
    hidden, weight, bias, target = make(40, 70, 5, rng)
    kwargs = {"bias": bias, "reduction": "none"}
    together = fy.linear_entmax_loss(hidden, weight, target, alpha, **kwargs)
    (grad,) = torch.autograd.grad(together.sum(), hidden)
    poisoned = hidden.detach().clone()
    poisoned[1::2] = math.nan
    poisoned.requires_grad_()
    apart = fy.linear_entmax_loss(poisoned, weight, target, alpha, **kwargs)
    (other,) = torch.autograd.grad(apart.sum(), poisoned)
    assert torch.equal(together[::2], apart[::2])
    assert apart[1::2].isnan().all()
    torch.testing.assert_close(grad[::2], other[::2], atol=1e-13, rtol=1e-13)
    for row in (0, 7, 39):
        one = hidden.detach()[row : row + 1].requires_grad_()
        alone = fy.linear_entmax_loss(one, weight, target[row : row + 1], alpha, **kwargs)
        torch.testing.assert_close(alone[0], together[row], atol=1e-12, rtol=1e-12)
        (own,) = torch.autograd.grad(alone.sum(), one)
        torch.testing.assert_close(own[0], grad[row], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_threads_change_no_digit(alpha, share, threads, monkeypatch, rng):
    monkeypatch.setattr(engine, "DENSE_SHARE", share)
    hidden, weight, bias, target = make(300, 900, 32, rng, dtype=torch.float32)
    hidden.data.copy_((hidden * 4).round() / 4)  # torch's product is exact: only ours is tested
    weight.data.copy_((weight * 4).round() / 4)
    bias.data.copy_((bias * 4).round() / 4)
    results = []
    for count in (1, 2, 3):
        threads(count)
        loss = fy.linear_entmax_loss(
            hidden, weight, target, alpha, bias=bias, reduction="none", sparse_grad=share == 1
        )
        grads = gradients(loss, (hidden, weight, bias))
        results.append([loss, *(g.to_dense() for g in grads)])
    if share == 0:  # torch's own dense products
        results = [r[:1] for r in results]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("sparse_grad", [False, True])
def test_it_learns(sparse_grad, backend, rng):
    """A linear teacher of 20 classes; every margin is met in the end."""
    teacher = torch.randn(20, 8, generator=rng)
    hidden = torch.randn(200, 8, generator=rng)
    target = (hidden @ teacher.t()).argmax(1)
    weight = torch.zeros(20, 8, requires_grad=True)
    kind = torch.optim.SparseAdam if sparse_grad else torch.optim.Adam
    optimizer = kind([weight], lr=0.5)
    losses = []
    for _ in range(150):
        loss = fy.linear_entmax_loss(hidden, weight, target, sparse_grad=sparse_grad)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]
    assert ((hidden @ weight.t()).argmax(1) == target).float().mean() > 0.98


# -- errors ------------------------------------------------------------------

HIDDEN, WEIGHT, TARGET = torch.zeros(3, 4), torch.zeros(5, 4), torch.tensor([0, 1, 4])
WRONG = [
    ([[0.0]], WEIGHT, TARGET, {}, "expected `hidden` to be a floating tensor, but got list"),
    (HIDDEN.long(), WEIGHT, TARGET, {}, "`hidden` to be a floating tensor, but got torch.int64"),
    (HIDDEN, None, TARGET, {}, "expected `weight` to be a floating tensor, but got NoneType"),
    (HIDDEN, WEIGHT.t(), TARGET, {}, "`weight` of shape (V, d), d at least 1, but got (3, 4) and ("),
    (HIDDEN, WEIGHT[0], TARGET, {}, "but got (3, 4) and (4,)"),
    (torch.tensor(1.0), WEIGHT, TARGET, {}, "but got () and (5, 4)"),
    (HIDDEN[:, :0], WEIGHT[:, :0], TARGET, {}, "but got (3, 0) and (5, 0)"),
    (HIDDEN, WEIGHT[:0], TARGET, {}, "expected at least one class, but `weight` has no rows"),
    (HIDDEN, WEIGHT.double(), TARGET, {}, "one dtype on one device, but got torch.float32 on cpu"),
    (HIDDEN, WEIGHT.to("meta"), TARGET, {}, "and torch.float32 on meta"),
    (HIDDEN, WEIGHT, TARGET, {"bias": [0.0] * 5}, "of shape (5,) and dtype torch.float32, but got li"),
    (HIDDEN, WEIGHT, TARGET, {"bias": torch.zeros(4)}, "expected `bias` of shape (5,)"),
    (HIDDEN, WEIGHT, TARGET, {"bias": torch.zeros(5).double()}, "but got (5,) and torch.float64"),
    (HIDDEN, WEIGHT, [0, 1, 2], {}, "expected `target` to be a torch.Tensor, but got list"),
    (HIDDEN, WEIGHT, TARGET[:2], {}, "class indices of shape (3,)"),
    (HIDDEN, WEIGHT, torch.full((3, 5), 0.2), {}, "for probabilities use `fy.entmax_loss(F.linear("),
    (HIDDEN, WEIGHT, TARGET.bool(), {}, "but got torch.bool"),
    (HIDDEN, WEIGHT, TARGET + 1, {}, "class indices in [0, 4] in `target`, but got 5"),
    (HIDDEN, WEIGHT, TARGET - 1, {}, "class indices in [0, 4] in `target`, but got -1"),
    (HIDDEN, WEIGHT, TARGET.to("meta"), {}, "(cpu), but it is on meta"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": 0.5}, "`alpha` must be at least 1 (1 is cross-entropy"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": math.nan}, "`alpha` must be at least 1"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": "a"}, "a number or a torch.Tensor, but got str"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": torch.ones(3)}, "`alpha` broadcastable to (3, 1)"),
    (HIDDEN, WEIGHT, TARGET, {"alpha": torch.ones(3, 1).long()}, "`alpha` of a floating dtype"),
    (HIDDEN, WEIGHT, TARGET, {"reduction": "avg"}, "'mean', 'sum' or 'none', but got 'avg'"),
    (HIDDEN, WEIGHT, TARGET, {"label_smoothing": 2}, "`label_smoothing` must be in [0, 1]; got 2"),
    (HIDDEN, WEIGHT, TARGET, {"label_smoothing": -1}, "`label_smoothing` must be at least 0"),
    (HIDDEN, WEIGHT, TARGET, {"ignore_index": 0.5}, "`ignore_index` to be an int, but got 0.5"),
    (HIDDEN, WEIGHT, TARGET, {"class_weight": [1.0]}, "`class_weight` to be a floating tensor"),
    (HIDDEN, WEIGHT, TARGET, {"class_weight": torch.ones(4)}, "`class_weight` of shape (5,) on cpu"),
    (HIDDEN, WEIGHT, TARGET, {"sparse_grad": 1}, "expected `sparse_grad` to be a bool, but got 1"),
    (
        HIDDEN,
        WEIGHT,
        TARGET,
        {"sparse_grad": True, "label_smoothing": 0.1},
        "expected no `label_smoothing` with `sparse_grad`",
    ),
    (
        HIDDEN,
        WEIGHT,
        TARGET,
        {
            "alpha": torch.full((3, 1), 1.5),
            "label_smoothing": 0.1,
            "class_weight": torch.ones(5),
        },
        "expected one `alpha` with `label_smoothing` and `class_weight`, but got 3 of them",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("hidden", "weight", "target", "kwargs", "said"), WRONG, ids=lambda v: str(v)[:40]
)
def test_wrong_arguments(hidden, weight, target, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.linear_entmax_loss(hidden, weight, target, **kwargs)
    message = str(error.value)
    assert message.startswith("linear_entmax_loss: ")
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message
