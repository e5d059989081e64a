"""The picture of a beam: the tree of prefixes, with every string and its probability."""

from __future__ import annotations

import sys

import pytest

from fenchel import FenchelError
from fenchel.analysis import plot_beam

pytest.importorskip("matplotlib")

DRAWN = [("d", 1.0), ("r", 0.9), ("n", 0.5), ("⏎", 1.0)]
DREW = [("d", 1.0), ("r", 0.9), ("w", 0.5), ("⏎", 0.75)]
DO = [("d", 1.0), ("o", 0.1), ("⏎", 1.0)]


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_every_string_is_there_with_its_probability():
    shown = texts(plot_beam([DO, DRAWN, DREW]))
    assert {"do", "drn", "drw"} <= set(shown)
    assert {"10.0 %", "45.0 %", "33.8 %"} <= set(shown)


def test_shared_prefixes_are_drawn_once():
    shown = texts(plot_beam([DRAWN, DREW]))
    assert shown.count("d") == shown.count("r") == 1
    assert shown.count("n") == shown.count("w") == 1


def test_probabilities_of_one_are_left_out():
    shown = texts(plot_beam([DRAWN, DREW]))
    assert "1.00" not in shown
    assert sorted(text for text in shown if text.startswith("0.")) == [
        "0.50",
        "0.50",
        "0.75",
        "0.90",
    ]


def test_small_probabilities_are_not_zero():
    shown = texts(plot_beam([DRAWN, [("d", 1.0), ("r", 0.9), ("m", 0.000123), ("⏎", 1.0)]]))
    assert "0.00012" in shown and "0.011 %" in shown


def test_the_likeliest_is_above_and_blue():
    axes = plot_beam([DO, DREW, DRAWN])
    places = {text.get_text(): text for text in axes.texts}
    rows = [places[name].get_position()[1] for name in ("drn", "drw", "do")]
    assert rows == sorted(rows) and len(set(rows)) == 3
    assert places["drn"].get_color() != places["drw"].get_color() == places["do"].get_color()


def test_start_and_end():
    axes = plot_beam([[("a", 1.0), ("$", 1.0)]], start="lemma", end="$")
    assert "lemma" in texts(axes) and "$" not in texts(axes)
    assert "⏎" in texts(plot_beam([[("⏎", 1.0)]], end="$"))


def test_axes_can_be_given():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert plot_beam([DO], ax=axes) is axes


@pytest.mark.parametrize("hypotheses", [[], [[]]])
def test_nothing_to_draw(hypotheses):
    with pytest.raises(FenchelError) as error:
        plot_beam(hypotheses)
    assert str(error.value) == (
        "plot_beam: expected at least one hypothesis of at least one step, but got none."
    )


@pytest.mark.parametrize("step", [("a", 0.0), ("a", 2.0), (1, 0.5), "a"])
def test_wrong_step(step):
    with pytest.raises(FenchelError) as error:
        plot_beam([[step]])
    assert str(error.value) == (
        f"plot_beam: expected steps of a token and its probability above 0, but got {step!r}."
    )


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'plot_beam needs matplotlib.*"fenchel\[plot\]"'):
        plot_beam([[("a", 1.0)]])
