"""Wrong arguments to `fy.entmax_attention`: one clear sentence each."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy

Q, K, V = torch.zeros(2, 4, 7, 5), torch.zeros(2, 4, 9, 5), torch.zeros(2, 4, 9, 3)
WRONG = [
    ([0.0], K, V, {}, "expected `query` to be a floating tensor, but got list"),
    (Q, K.long(), V, {}, "expected `key` to be a floating tensor, but got torch.int64"),
    (Q, K, None, {}, "expected `value` to be a floating tensor, but got NoneType"),
    (Q[0, 0, 0], K, V, {}, "expected `query` of shape (…, length, width), but got (5,)"),
    (Q, K.double(), V, {}, "`query` is torch.float32 on cpu and `key` torch.float64 on cpu"),
    (Q, K, V.to("meta"), {}, "`value` torch.float32 on meta"),
    (Q, K[..., :4], V, {}, "of one width of at least 1, but got 5 and 4"),
    (Q[..., :0], K[..., :0], V, {}, "one width of at least 1, but got 0 and 0"),
    (Q, K[..., :8, :], V, {}, "one length of at least 1, but got 8 and 9"),
    (Q, K[..., :0, :], V[..., :0, :], {}, "one length of at least 1, but got 0 and 0"),
    (Q, K[:, :2], V[:, :2], {}, "with fewer heads of keys use enable_gqa=True"),
    (Q, K[:, :3], V, {}, "expected shapes in front of (length, width) that broadcast, but got"),
    (Q, K[:, :3], V[:, :3], {"enable_gqa": True}, "heads of `query` (4) that are a multiple of"),
    (Q, K[:, :2], V[:, :1], {"enable_gqa": True}, "those of `key` (2) and `value` (1)"),
    (Q, K[:, :0], V[:, :0], {"enable_gqa": True}, "those of `key` (0) and `value` (0)"),
    (Q, K[:1].expand(3, 4, 9, 5), V, {"enable_gqa": True}, "that broadcast, but got"),
    (Q, K, V, {"is_causal": 1}, "expected `is_causal` to be a bool, but got 1"),
    (Q, K, V, {"enable_gqa": None}, "expected `enable_gqa` to be a bool, but got None"),
    (Q, K, V, {"dropout_p": 1.5}, "`dropout_p` must be in [0, 1]; got 1.5"),
    (Q, K, V, {"dropout_p": -0.5}, "`dropout_p` must be at least 0"),
    (Q, K, V, {"dropout_p": "a"}, "expected `dropout_p` to be a number, but got str"),
    (Q, K, V, {"scale": "a"}, "expected `scale` to be a number, but got str"),
    (Q, K, V, {"scale": math.nan}, "`scale` must be at least -inf (and not NaN); got nan"),
    (Q, K, V, {"is_causal": True, "attn_mask": torch.ones(7, 9).bool()}, "but got both; put"),
    (Q, K, V, {"attn_mask": [True]}, "a boolean (True = look) or floating (added) tensor, but"),
    (Q, K, V, {"attn_mask": torch.ones(7, 9).long()}, "tensor, but got torch.int64"),
    (Q, K, V, {"attn_mask": torch.ones(9, 7)}, "broadcastable to (2, 4, 7, 9), but got (9, 7)"),
    (Q, K, V, {"attn_mask": torch.ones(7, 9, device="meta")}, "on cpu, but it is on meta"),
    (Q, K, V, {"alpha": 0.0}, "`alpha` must be above 0 (1 is softmax, 2 is sparsemax); got 0.0"),
    (Q, K, V, {"alpha": math.nan}, "`alpha` must be above 0"),
    (Q, K, V, {"alpha": "a"}, "`alpha` to be a number or a torch.Tensor, but got str"),
    (Q, K, V, {"alpha": torch.ones(4).long()}, "expected `alpha` of a floating dtype"),
    (Q, K, V, {"alpha": torch.ones(3)}, "one number per head, shape (4,) or broadcastable to"),
    (Q, K, V, {"alpha": torch.ones(2, 4)}, "(2, 4, 1, 1), but got (2, 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("q", "k", "v", "kwargs", "said"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_arguments(q, k, v, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        fy.entmax_attention(q, k, v, **kwargs)
    message = str(error.value)
    assert message.startswith("entmax_attention: ")
    assert said in message
    assert message.endswith(".")
    assert "\n" not in message
