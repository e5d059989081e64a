"""nn.MultiheadAttention: torch's module in every way but the map."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import fenchel as fy
from tests.regularizers.cases import randn

pytestmark = pytest.mark.usefixtures("backend")


def pair(**kwargs) -> tuple[fy.nn.MultiheadAttention, nn.MultiheadAttention]:
    """Ours at alpha = 1 and torch's, with the same weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(12, 3, dtype=torch.float64, **kwargs)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = fy.nn.MultiheadAttention(12, 3, dtype=torch.float64, alpha=1.0, **kwargs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(rng, batch_first: bool, kdim: int = 12, vdim: int = 12):
    shape = (2, 5), (2, 7), (2, 7)
    sizes = (12, kdim, vdim)
    made = [randn(*s, n, rng=rng) for s, n in zip(shape, sizes, strict=True)]
    return made if batch_first else [x.transpose(0, 1) for x in made]


PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
LOOK = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.3
LOOK[:, 0] = False
PER_HEAD = torch.rand(6, 5, 7, generator=torch.Generator().manual_seed(2)) < 0.3
PER_HEAD[:, :, 0] = False
ADDED = torch.randn(5, 7, generator=torch.Generator().manual_seed(3)).double()
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "look": {"attn_mask": LOOK},
    "per head": {"attn_mask": PER_HEAD},
    "added": {"attn_mask": ADDED},
    "both": {"attn_mask": LOOK, "key_padding_mask": PADDING},
    "added padding": {"key_padding_mask": PADDING.double() * -3.0},
    "mixed": {"attn_mask": ADDED, "key_padding_mask": PADDING.double() * -2.0},
}
OPTIONS = [
    {},
    {"batch_first": True},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    {"kdim": 6, "vdim": 8},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_alpha_one_is_torch(options, mask, need_weights, rng):
    ours, theirs = pair(**options)
    tensors = inputs(
        rng, options.get("batch_first", False), options.get("kdim", 12), options.get("vdim", 12)
    )
    kwargs = {**MASKS[mask], "need_weights": need_weights}
    got, wanted = ours(*tensors, **kwargs), theirs(*tensors, **kwargs)
    torch.testing.assert_close(got[0], wanted[0], atol=1e-12, rtol=1e-12)
    if need_weights:
        torch.testing.assert_close(got[1], wanted[1], atol=1e-12, rtol=1e-12)
        each = ours(*tensors, **kwargs, average_attn_weights=False)[1]
        torch.testing.assert_close(
            each, theirs(*tensors, **kwargs, average_attn_weights=False)[1], atol=1e-12, rtol=1e-12
        )
    else:
        assert got[1] is None
    got[0].square().sum().backward()
    wanted[0].square().sum().backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-10, rtol=1e-10, msg=name)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_causal(need_weights, padded, rng):
    ours, theirs = pair(batch_first=True)
    x = randn(2, 6, 12, rng=rng)
    mask = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    padding = torch.tensor([[0.0] * 6, [0.0] * 4 + [-torch.inf] * 2]).double() if padded else None
    kwargs = {"need_weights": need_weights, "key_padding_mask": padding}
    wanted = theirs(x, x, x, attn_mask=mask, is_causal=True, **kwargs)[0]
    for given in ({"attn_mask": mask, "is_causal": True}, {"is_causal": True}):
        got = ours(x, x, x, **given, **kwargs)[0]
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)


def test_unbatched(rng):
    ours, theirs = pair()
    q, k = randn(5, 12, rng=rng), randn(7, 12, rng=rng)
    padding = PADDING[1]
    for need_weights in (True, False):
        kwargs = {"key_padding_mask": padding, "need_weights": need_weights}
        got, wanted = ours(q, k, k, **kwargs), theirs(q, k, k, **kwargs)
        torch.testing.assert_close(got[0], wanted[0], atol=1e-12, rtol=1e-12)
        if need_weights:
            torch.testing.assert_close(got[1], wanted[1], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_both_paths_agree_and_weights_are_sparse(alpha, rng):
    module = fy.nn.MultiheadAttention(12, 3, dtype=torch.float64, alpha=alpha, batch_first=True)
    nn.init.normal_(module.in_proj_weight)
    x = randn(2, 6, 12, rng=rng)
    dense, weights = module(x, x, x, average_attn_weights=False)
    fast, none = module(x, x, x, need_weights=False)
    assert none is None
    torch.testing.assert_close(fast, dense, atol=1e-12, rtol=1e-12)
    assert (weights == 0).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 6).double())


def test_learned_alpha(rng):
    module = fy.nn.MultiheadAttention(
        12, 3, dtype=torch.float64, alpha=1.25, learn_alpha=True, batch_first=True
    )
    assert torch.allclose(module.alpha, torch.full((3,), 1.25))
    assert set(module.state_dict()) == {*nn.MultiheadAttention(12, 3).state_dict(), "alpha_logit"}
    nn.init.normal_(module.in_proj_weight)
    x = randn(2, 6, 12, rng=rng)
    gradients = []
    for need_weights in (True, False):
        module.zero_grad()
        module(x, x, x, need_weights=need_weights)[0].square().sum().backward()
        gradients.append(module.alpha_logit.grad.clone())
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)
    assert (gradients[0] != 0).all()


def test_any_map_as_normalizer(rng):
    x = randn(2, 6, 12, rng=rng)
    base = fy.nn.MultiheadAttention(12, 3, dtype=torch.float64, alpha=2.0, batch_first=True)
    for normalizer in (fy.sparsemax, fy.nn.Sparsemax(), lambda s: fy.entmax(s, 2.0)):
        module = fy.nn.MultiheadAttention(
            12, 3, dtype=torch.float64, batch_first=True, normalizer=normalizer
        )
        module.load_state_dict(base.state_dict())
        for need_weights in (True, False):
            got = module(x, x, x, need_weights=need_weights)[0]
            torch.testing.assert_close(got, base(x, x, x)[0], atol=1e-12, rtol=1e-12)
    other = fy.nn.MultiheadAttention(
        12, 3, dtype=torch.float64, batch_first=True, normalizer=fy.normmax
    )
    assert other(x, x, x)[0].isfinite().all()


def test_in_torchs_encoder_layer(rng):
    """In eval mode torch has a fused softmax layer: it must not take the place of ours."""
    layer = nn.TransformerEncoderLayer(12, 2, 16, 0.0, batch_first=True, dtype=torch.float64)
    nn.init.normal_(layer.self_attn.in_proj_weight)
    ours = fy.nn.MultiheadAttention(12, 2, dtype=torch.float64, batch_first=True, alpha=2.0)
    ours.load_state_dict(layer.self_attn.state_dict())
    sparse = copy.deepcopy(layer)
    sparse.self_attn = ours
    x = randn(2, 6, 12, rng=rng)
    with torch.no_grad():
        training = sparse.train()(x)
        evaluation = sparse.eval()(x)
        softmax = layer.eval()(x)
    torch.testing.assert_close(evaluation, training, atol=1e-12, rtol=1e-12)
    assert (evaluation - softmax).abs().max() > 1e-3


def test_dropout_only_in_training(rng):
    module = fy.nn.MultiheadAttention(12, 3, dropout=0.5, dtype=torch.float64, batch_first=True)
    x = randn(2, 6, 12, rng=rng)
    for need_weights in (True, False):
        first, second = (module(x, x, x, need_weights=need_weights)[0] for _ in range(2))
        assert not torch.equal(first, second)
        module.eval()
        first, second = (module(x, x, x, need_weights=need_weights)[0] for _ in range(2))
        assert torch.equal(first, second)
        module.train()


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"alpha": -0.5}, "`alpha` must be above 0 (1 is softmax); got -0.5"),
        ({"alpha": 0.5, "learn_alpha": True}, "strictly between low=1 and high=2; got 0.5"),
        (
            {"alpha": 2.0, "learn_alpha": True},
            "strictly between low=1 and high=2; got 2",
        ),
        ({"normalizer": 2.0}, "expected `normalizer` to be a callable or the name of a map"),
        ({"normalizer": fy.sparsemax, "learn_alpha": True}, "without `learn_alpha`"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_arguments(kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.nn.MultiheadAttention(12, 3, **kwargs)
    assert said in str(error.value)
    assert str(error.value).startswith("nn.MultiheadAttention: ")


def test_heads_must_divide():
    with pytest.raises(fy.FenchelError, match="`num_heads` that divides `embed_dim`"):
        fy.nn.MultiheadAttention(12, 5)
    module = fy.nn.MultiheadAttention(12, 3)
    with pytest.raises(fy.FenchelError, match="of two dimensions, or three with a batch"):
        module(torch.zeros(12), torch.zeros(12), torch.zeros(12))


def test_repr():
    assert repr(fy.nn.MultiheadAttention(12, 3)).startswith(
        "MultiheadAttention(\n  12, 3, alpha=1.5"
    )
