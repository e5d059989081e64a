"""The picture of attention weights: grey zeros, no border between the fused, markers for groups."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from fenchel.analysis import plot_attention

matplotlib = pytest.importorskip("matplotlib")

GREY = matplotlib.colors.to_rgba("#d9d9d9")


def vertical_borders(axes, row: int) -> set[int]:
    lines = [line for line in axes.lines if len(set(line.get_xdata())) == 1]
    return {int(line.get_xdata()[0]) for line in lines if int(min(line.get_ydata())) == row}


def test_zeros_are_grey_and_fused_neighbours_have_no_border():
    weights = torch.tensor([[0.4, 0.4, 0.2, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0, 0.0]])
    axes = plot_attention(weights, ["a", "b"], list("vwxyz"))
    colours = [patch.get_facecolor() for patch in axes.patches]
    grey = [colour == GREY for colour in colours]
    assert grey == (weights == 0).flatten().tolist()
    assert vertical_borders(axes, 0) == {2, 3, 4}
    assert vertical_borders(axes, 1) == {1, 3, 4}
    assert [label.get_text() for label in axes.get_xticklabels()] == list("vwxyz")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_scattered_groups_get_markers():
    axes = plot_attention(torch.tensor([0.3, 0.05, 0.3, 0.05, 0.3]))
    marked = [line for line in axes.lines if line.get_marker() not in (None, "None", "")]
    assert sorted(line.get_xdata().tolist() for line in marked) == [[0.5, 2.5, 4.5], [1.5, 3.5]]
    assert marked[0].get_marker() != marked[1].get_marker()


def test_groups_can_be_given():
    weights = torch.tensor([0.25, 0.25, 0.25, 0.25])
    axes = plot_attention(weights, groups=torch.tensor([0, 0, 1, 1]))
    assert vertical_borders(axes, 0) == {2}


def test_the_darkest_colour_can_be_that_of_another_weight():
    darkest = matplotlib.colormaps["Blues"](1.0)
    assert plot_attention(torch.tensor([0.5, 0.2])).patches[0].get_facecolor() == darkest
    paler = plot_attention(torch.tensor([0.5, 0.2]), top=1.0).patches[0].get_facecolor()
    assert paler == matplotlib.colormaps["Blues"](0.15 + 0.85 * 0.5)


def test_draws_on_given_axes():
    figure = matplotlib.figure.Figure()
    ax = figure.subplots()
    assert plot_attention(fy.oscarmax(torch.randn(3, 6)), ax=ax) is ax


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (([0.1],), {}, "expected `weights` to be a floating tensor, but got list"),
        ((torch.zeros(2, 2, 2),), {}, "expected `weights` of shape (queries, keys)"),
        ((torch.zeros(2, 3), ["a"]), {}, "expected 2 names in `queries`, but got 1"),
        ((torch.zeros(2, 3), None, ["a"]), {}, "expected 3 names in `keys`, but got 1"),
        ((torch.zeros(2, 3),), {"groups": torch.zeros(2, 3)}, "expected `groups` to be an integer"),
        (
            (torch.zeros(2, 3),),
            {"groups": torch.zeros(2, 2).int()},
            "expected `groups` of the shape",
        ),
    ],
)
def test_errors(args, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        plot_attention(*args, **kwargs)
    assert said in str(error.value)
