"""Values in messages are short, and take no time, whatever they are."""

from __future__ import annotations

import pytest

from fenchel._short import bare, short


def bomb(levels: int = 12) -> list:
    value: list = ["lol"] * 9
    for _ in range(levels):
        value = [value] * 9
    return value


@pytest.mark.parametrize(
    "value",
    [bomb(), {"a": bomb()}, "x" * 10**6, b"x" * 10**6, 10**9999, -(10**9999), list(range(10**6))],
    ids=["bomb", "dict", "text", "bytes", "int", "negative", "list"],
)
def test_it_is_short(value):
    assert len(short(value)) < 200


@pytest.mark.parametrize("value", ["a", 1, -2.5, None, True, [], (1, 2), {"a": 1}, "it's"])
def test_a_short_value_is_its_repr(value):
    assert short(value) == repr(value)


def test_without_quotes():
    assert (bare("9.1"), bare(7), bare("x" * 100)) == ("9.1", "7", "x" * 80)
