"""Wrong arguments to losses: one clear sentence each."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy

SCORES = torch.zeros(3, 5)
INDEX = torch.tensor([0, 1, 4])
SOFT = torch.full((3, 5), 0.2)

FUNCTIONS = {
    "entmax_loss": fy.entmax_loss,
    "entmax15_loss": fy.entmax15_loss,
    "sparsemax_loss": fy.sparsemax_loss,
    "fenchel_young_loss": lambda *args, **kwargs: fy.fenchel_young_loss(
        *args, omega="gini", **kwargs
    ),
}
every_loss = pytest.mark.parametrize("name", FUNCTIONS)

WRONG = [
    ([[0.0, 1.0]], INDEX, {}, "expected `scores` to be a torch.Tensor, but got list"),
    (SCORES.long(), INDEX, {}, "expected `scores` of a floating dtype"),
    (SCORES, [0, 1, 2], {}, "expected `target` to be a torch.Tensor, but got list"),
    (
        SCORES,
        INDEX.bool(),
        {},
        "class indices (int64) or probabilities (floating), but got torch.b",
    ),
    (SCORES, INDEX[:2], {}, "of shape (3,) (`scores` of shape (3, 5) without dim 1), but got (2,)"),
    (SCORES, INDEX.float(), {}, "class indices must be int64"),
    (SCORES, SOFT[:, :4], {}, "(probabilities) of the shape of `scores` (3, 5), but got (3, 4)"),
    (SCORES, torch.tensor([0, 1, 5]), {}, "class indices in [0, 4] in `target`, but got 5"),
    (SCORES, torch.tensor([0, -1, 2]), {}, "class indices in [0, 4] in `target`, but got -1"),
    (SCORES, torch.tensor([0, -100, -7]), {}, "class indices in [0, 4] in `target`, but got -7"),
    (SCORES, SOFT * 0.9, {}, "sum to 1 along the class axis of `target`, but row 0 sums to 0.9"),
    (SCORES, SOFT - torch.eye(5)[:3], {}, "class axis of `target`, but row 0 has an entry of -0.8"),
    (SCORES, SOFT * torch.nan, {}, "sums to nan"),
    (SCORES, INDEX, {"reduction": "avg"}, "'mean', 'sum' or 'none', but got 'avg'"),
    (SCORES, INDEX, {"reduction": None}, "'mean', 'sum' or 'none', but got None"),
    (SCORES, INDEX, {"label_smoothing": 1.5}, "`label_smoothing` must be in [0, 1]; got 1.5"),
    (SCORES, INDEX, {"label_smoothing": -0.1}, "`label_smoothing` must be at least 0"),
    (SCORES, INDEX, {"label_smoothing": "a"}, "`label_smoothing` to be a number, but got str"),
    (SCORES, INDEX, {"ignore_index": 0.5}, "expected `ignore_index` to be an int, but got 0.5"),
    (SCORES, INDEX, {"ignore_index": None}, "expected `ignore_index` to be an int, but got None"),
    (SCORES, INDEX, {"weight": [1.0] * 5}, "expected `weight` to be a floating tensor"),
    (
        SCORES,
        INDEX,
        {"weight": torch.ones(4)},
        "expected `weight` of shape (5,) on cpu, but got (4",
    ),
    (SCORES, INDEX, {"dim": 2}, "expected `dim` in [-2, 1]"),
    (SCORES, INDEX, {"dim": "x"}, "expected `dim` to be an int, but got 'x'"),
    (SCORES, INDEX, {"dim": 0}, "of shape (5,) (`scores` of shape (3, 5) without dim 0)"),
    (SCORES, INDEX.to("meta"), {}, "on the device of `scores` (cpu), but it is on meta"),
    (torch.zeros(3, 0), INDEX, {}, "expected at least one entry along `dim`"),
    (torch.tensor(1.0), torch.tensor(0), {}, "at least one dimension"),
]


@every_loss
@pytest.mark.parametrize(("scores", "target", "kwargs", "said"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_arguments(name, scores, target, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        FUNCTIONS[name](scores, target, **kwargs)
    message = str(error.value)
    assert message.startswith(f"{name}: ")
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        (0.0, "entmax_loss: `alpha` must be above 0 (1 is cross-entropy"),
        (float("nan"), "must be above 0"),
        ("big", "expected `alpha` to be a number or a torch.Tensor, but got str"),
        (None, "but got NoneType"),
        (torch.ones(5), "expected `alpha` broadcastable to (3, 1)"),  # a weight in alpha's place
        (torch.ones(3), "expected `alpha` broadcastable to (3, 1)"),
        (torch.ones(1, dtype=torch.long), "expected `alpha` of a floating dtype"),
    ],
    ids=str,
)
def test_wrong_alpha(alpha, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.entmax_loss(SCORES, INDEX, alpha)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("omega", "said"),
    [
        (
            "ginny",
            "expected `omega` to be one of 'fused_lasso', 'gini', 'norm', 'oscar', 'renyi', ",
        ),
        (1.5, "expected `omega` to be a Regularizer such as fy.Tsallis(1.5), or the name of one"),
        (fy.Gini, "but got ABCMeta"),
        (None, "but got NoneType"),
    ],
    ids=str,
)
def test_wrong_omega(omega, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.fenchel_young_loss(SCORES, INDEX, omega)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fy.Tsallis(-0.9), "Tsallis: `alpha` must be above 0"),
        (lambda: fy.Tsallis("a"), "Tsallis: expected `alpha` to be a number"),
        (lambda: fy.Norm(0.9), "Norm: `q` must be at least 1"),
        (lambda: fy.SquaredNorm(0.5), "SquaredNorm: `q` must be at least 1"),
        (lambda: fy.SquaredNorm(torch.tensor(2.0)), "SquaredNorm: expected `q` to be a number"),
        (lambda: fy.Renyi(1.5), "Renyi: `beta` must be in (0, 1] (1 is softmax; above"),
        (lambda: fy.Renyi(0), "Renyi: `beta` must be in (0, 1]"),
        (lambda: 0.0 * fy.Gini(), "Scaled: `gamma` must be a finite number above 0; got 0"),
        (lambda: float("inf") * fy.Gini(), "Scaled: `gamma` must be a finite number above 0"),
        (lambda: "two" * fy.Gini(), "Scaled: expected `gamma` to be a number, but got str"),
        (lambda: fy.Scaled("gini", 2.0), "Scaled: expected `omega` to be a Regularizer"),
        (lambda: fy.Gini().predict(SCORES, mask=INDEX), "Gini.predict: expected `mask`"),
        (lambda: fy.Squared().predict(SCORES, mask=SCORES > 0), "Squared.predict: expected no `m"),
        (lambda: fy.Gini().bregman(SOFT, SOFT[:, :3]), "Gini.bregman: expected `y` and `p` of one"),
        (lambda: fy.Gini()(3.0), "Gini: expected `scores` to be a torch.Tensor"),
        (lambda: fy.Gini().loss(SCORES, SOFT * 2), "Gini.loss: expected probabilities that sum to"),
        (lambda: fy.Gini().loss(SCORES, INDEX + 1), "Gini.loss: expected class indices in [0, 4]"),
        (lambda: fy.Tsallis(torch.ones(3)).loss(SCORES, INDEX), "Tsallis.loss: expected `alpha`"),
    ],
)
def test_wrong_regularizers(make, said):
    with pytest.raises(fy.FenchelError) as error:
        make()
    assert said in str(error.value)


def test_half_probabilities_need_not_sum_to_one_exactly():
    q = torch.softmax(torch.randn(4, 1000), -1)
    for dtype in (torch.bfloat16, torch.float16):
        fy.entmax_loss(torch.zeros(4, 1000, dtype=dtype), q.to(dtype))


def test_squared_takes_any_vectors():
    y = torch.tensor([[3.0, -1.0]])
    loss = fy.fenchel_young_loss(torch.zeros(1, 2), y, "squared")
    assert loss == 5.0
