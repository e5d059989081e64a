"""The second argument of a map: never an axis that was meant for a parameter, nor the reverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fenchel as fy
from fenchel.maps.declaration import MAPS
from fenchel.nn.normalizers import MODULES

X = torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.9]])
#: All but those that count entries: `budget(x, 2)` is clear.
DOUBTFUL = [m for m in MAPS.values() if m.argument and not m.argument.up_to_entries]
FUNCTIONS = {m.name: (m.function, m.argument.keyword) for m in DOUBTFUL} | {
    "sparse_entmax": (fy.sparse_entmax, "alpha"),
    "oscarmax_approx": (fy.oscarmax_approx, "lam"),
}


@pytest.mark.parametrize(("function", "parameter"), FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("value", [0, 1, -1, 2, np.int64(1)], ids=repr)
def test_a_bare_int_could_mean_either(function, parameter, value):
    """``torch.softmax(x, 1)`` means ``dim=1``."""
    with pytest.raises(fy.FenchelError) as error:
        function(X, value)
    assert str(error.value) == (
        f"{function.__name__}: a bare {value} could mean `dim` or `{parameter}`; write "
        f"`dim={value}` or `{parameter}={value}`."
    )


@pytest.mark.parametrize("declared", DOUBTFUL, ids=lambda m: m.name)
def test_modules_too(declared):
    """``torch.nn.Softmax(1)`` means ``dim=1``."""
    module, parameter = MODULES[declared.name], declared.argument.keyword
    with pytest.raises(fy.FenchelError, match=f"could mean `dim` or `{parameter}`; write `dim=1`"):
        module(1)
    assert module(dim=0)(X).shape == X.shape
    assert fy.nn.Entmax(alpha=2)(X).equal(fy.sparsemax(X))


def test_what_is_named_or_no_int_is_clear():
    assert torch.equal(fy.entmax(X, alpha=2), fy.sparsemax(X))
    assert torch.equal(fy.entmax(X, 2.0), fy.sparsemax(X))
    assert torch.equal(fy.entmax(X, torch.tensor(2.0)), fy.sparsemax(X))
    assert torch.equal(fy.entmax(X, dim=0), fy.entmax(X.t()).t())
    assert torch.equal(fy.entmax(X, 1.5, 0), fy.entmax(X, dim=0))
    assert torch.equal(fy.softmax(X, 0), fy.softmax(X, dim=0))  # no parameter, no doubt


def test_attention_has_the_places_of_torch():
    q = torch.randn(1, 2, 4, 3)
    mask = torch.ones(4, 4).bool().tril()
    got = fy.entmax_attention(q, q, q, mask, 0.0, False, 0.5, False, alpha=1.0)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, q, q, mask, 0.0, False, scale=0.5)
    torch.testing.assert_close(got, wanted)
    with pytest.raises(fy.FenchelError, match=r"`attn_mask` .* got float"):
        fy.entmax_attention(q, q, q, 1.5)
