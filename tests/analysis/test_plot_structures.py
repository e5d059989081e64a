"""Pictures of structures: what is drawn, what is grey or left out, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import fenchel as fy
from fenchel.analysis import plot_alignment, plot_matching, plot_sequence, plot_trees

matplotlib = pytest.importorskip("matplotlib")

GREY = matplotlib.colors.to_rgba("#d9d9d9")
DARK = matplotlib.colors.to_rgba("#333333")


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def arcs_of(axes) -> list[str]:
    return sorted(patch.get_gid() for patch in axes.patches)


# ------------------------------------------------------------------ trees

ARCS = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.7, 0.0, 0.0, 0.3], [0.3, 0.0, 0.7, 0.0]])


def test_a_mean_tree_has_an_arrow_for_every_arc_above_0():
    axes = plot_trees(ARCS, ["old", "dogs", "bark"])
    assert arcs_of(axes) == ["0->2", "0->3", "2->1", "2->3", "3->2"]
    assert texts(axes)[:5] == ["old", "dogs", "bark", "root", "root"]
    assert sorted(texts(axes)[5:]) == ["0.30", "0.30", "0.70", "0.70", "1"]
    width = {patch.get_gid(): patch.get_linewidth() for patch in axes.patches}
    assert width["2->1"] > width["2->3"] > width["3->2"]
    dark = [patch.get_gid() for patch in axes.patches if patch.get_edgecolor()[:3] == DARK[:3]]
    assert dark == ["2->1"]


def test_weights_are_written_from_a_threshold_on():
    assert sorted(texts(plot_trees(ARCS, label_from=0.5))[5:]) == ["0.70", "0.70", "1"]


def test_arrows_end_at_the_word():
    axes = plot_trees(ARCS)
    for patch in axes.patches:
        head, word = map(int, patch.get_gid().split("->"))
        across = patch.get_path().vertices[:, 0]
        assert round(across[0]) == (word - 1 if head == 0 else head - 1)
        assert round(across[1 if head == 0 else 3]) == word - 1


def test_a_distribution_has_a_colour_and_a_legend_entry_for_each_tree():
    scores = torch.full((3, 4), -3.0)
    scores[0, 2], scores[1, 0] = 3.0, 3.0
    scores[2, 2], scores[2, 1] = 0.4, 0.0
    answer = fy.SparseMAP(fy.DependencyTree()).solve(scores)
    axes = plot_trees(answer, ["a", "b", "c"])
    assert arcs_of(axes) == ["0->2", "1->3", "2->1", "2->3"]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["tree 1: 0.70", "tree 2: 0.30", "in all trees"]
    colours = {patch.get_gid(): patch.get_edgecolor()[:3] for patch in axes.patches}
    assert colours["0->2"] == colours["2->1"] == DARK[:3]
    assert len({colours["1->3"], colours["2->3"], DARK[:3]}) == 3


def test_an_arc_of_some_trees_is_drawn_once_for_each():
    answer = fy.SparseMAP(fy.DependencyTree()).solve(torch.zeros(3, 4))
    drawn = len(plot_trees(answer).patches)
    trees = int((answer.weights > 0).sum())
    assert trees > 2
    assert drawn == 3 * trees


def test_a_padded_instance_is_drawn_without_its_padding():
    scores, lengths = torch.zeros(2, 4, 5), torch.tensor([4, 2])
    scores[1, 0, 2], scores[1, 1, 0] = 3.0, 3.0
    omega = fy.SparseMAP(fy.DependencyTree())
    axes = plot_trees(omega.solve(scores, lengths=lengths), ["big", "dog"], instance=1)
    assert arcs_of(axes) == ["0->2", "2->1"]
    mean = plot_trees(omega.predict(scores, lengths=lengths)[1], ["big", "dog"])
    assert arcs_of(mean) == ["0->2", "2->1"]


def test_more_trees_than_colours_differ_in_their_dashes():
    generator = torch.Generator().manual_seed(0)
    scores = 0.02 * torch.randn(4, 5, generator=generator)
    answer = fy.SparseMAP(fy.DependencyTree()).solve(scores)
    handles = plot_trees(answer).get_legend().legend_handles[:-1]
    looks = {(line.get_color(), line._dash_pattern[1] and 1) for line in handles}
    assert len(handles) > 6
    assert len(looks) == len(handles)


# ------------------------------------------------------------------ matchings


def test_a_matching_has_a_line_for_every_pair_above_0():
    weights = torch.tensor([[0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    axes = plot_matching(weights, ["a", "b"], ["w", "x", "y", "z"])
    assert [line.get_gid() for line in axes.lines] == ["0-0", "0-1", "1-2"]
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths[2] > widths[0] > widths[1]
    assert axes.lines[2].get_color() == "#333333"
    assert texts(axes) == ["0.60", "0.40", "a", "b", "w", "x", "y", "z"]
    colours = {text.get_text(): text.get_color() for text in axes.texts}
    assert colours["z"] != colours["y"] == colours["a"]


def test_a_matching_without_names_has_numbers():
    assert texts(plot_matching(torch.eye(2))) == ["0", "1", "0", "1"]


# ------------------------------------------------------------------ alignments


def test_cells_that_are_exactly_0_are_grey():
    weights = torch.tensor([[1.0, 0.4, 0.0], [0.0, 1e-9, 1.0]])
    axes = plot_alignment(weights, ["a", "b"], ["x", "y", "z"])
    colours = axes.images[0].get_array()
    grey = [[tuple(colour) == GREY for colour in row] for row in colours]
    assert grey == (weights == 0).tolist()
    assert tuple(colours[0, 0]) == matplotlib.colormaps["Blues"](1.0)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_colours_of_alignments_can_be_compared():
    faint = plot_alignment(torch.full((1, 2), 0.5)).images[0].get_array()
    full = plot_alignment(torch.tensor([[1.0, 0.5]])).images[0].get_array()
    assert tuple(faint[0, 0]) == tuple(full[0, 1])


def test_a_path_is_a_line():
    path = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    line = plot_alignment(torch.full((2, 3), 0.5), path=path).lines[-1]
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [0, 0, 1]


def test_the_colours_can_be_chosen():
    weights = torch.ones(1, 2)
    assert tuple(plot_alignment(weights, cmap="Reds").images[0].get_array()[0, 0]) == (
        matplotlib.colormaps["Reds"](1.0)
    )
    assert tuple(plot_sequence(weights, cmap="Reds").collections[0].get_facecolor()[0]) == (
        matplotlib.colormaps["Reds"](1.0)
    )


# ------------------------------------------------------------------ sequences


def test_tags_that_are_exactly_0_are_small_and_grey():
    means = torch.tensor([[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]])
    axes = plot_sequence(means, ["N", "V", "D"], ["time", "flies"])
    grey = [tuple(c.get_facecolor()[0]) == GREY for c in axes.collections]
    assert grey == (means == 0).flatten().tolist()
    sizes = torch.tensor([float(c.get_sizes()[0]) for c in axes.collections])
    assert sizes.argsort(descending=True)[:3].tolist() == [4, 0, 1]
    assert texts(axes) == ["0.75", "0.25", "1"]
    assert len(axes.lines) == 0
    assert [label.get_text() for label in axes.get_yticklabels()] == ["N", "V", "D"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["time", "flies"]


def test_transitions_of_each_position_are_lines():
    means = torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    steps = torch.tensor([[[0.0, 0.75], [0.0, 0.25]]])
    axes = plot_sequence(fy.SequenceScores(means, steps))
    assert [line.get_gid() for line in axes.lines] == ["0:0->1", "0:1->1"]
    assert axes.lines[0].get_linewidth() > axes.lines[1].get_linewidth()
    shared = plot_sequence(fy.SequenceScores(means, steps[0]), ["N", "V"])
    assert len(shared.lines) == 0


# ------------------------------------------------------------------ for all


@pytest.mark.parametrize("plot", [plot_trees, plot_matching, plot_alignment, plot_sequence])
def test_draws_on_given_axes_what_has_a_graph(plot):
    ax = matplotlib.figure.Figure().subplots()
    mean = fy.SparseMAP(fy.DependencyTree()).predict(torch.zeros(2, 3, requires_grad=True))
    assert plot(mean, ax=ax) is ax


ANSWER = fy.SparseMAP(fy.DependencyTree()).solve(torch.zeros(2, 3))
OTHER = dataclasses.replace(ANSWER, means=torch.zeros(1, 5))


@pytest.mark.parametrize(
    ("plot", "args", "kwargs", "said"),
    [
        (plot_trees, (torch.eye(3),), {}, "plot_trees: expected `arcs` of shape (n, n + 1), a row"),
        (plot_trees, (ARCS, ["a"]), {}, "plot_trees: expected 3 names in `words`, but got 1."),
        (plot_trees, (ARCS - 5,), {}, "plot_trees: expected `arcs` to hold means of structures"),
        (plot_trees, (ANSWER,), {"instance": 1}, "expected `instance` from 0 to 0, but got 1."),
        (plot_trees, (OTHER,), {}, "expected the answer of a DependencyTree, with n (n + 1) parts"),
        (plot_matching, (torch.eye(2), ["a"]), {}, "expected 2 names in `rows`, but got 1."),
        (plot_matching, (torch.eye(2), None, "a"), {}, "expected 2 names in `columns`, but got 1."),
        (plot_matching, (torch.zeros(2),), {}, "`weights` of shape (rows, columns), but got (2,)."),
        (plot_alignment, ([1.0],), {}, "`weights` to be a floating tensor, but got list."),
        (
            plot_alignment,
            (torch.full((2, 2), math.nan),),
            {},
            "one is nan; draw what `predict`",
        ),
        (plot_alignment, (torch.eye(2), ["a"]), {}, "expected 2 names in `rows`, but got 1."),
        (plot_alignment, (torch.eye(2), None, "a"), {}, "expected 2 names in `columns`"),
        (
            plot_alignment,
            (torch.eye(2),),
            {"path": torch.eye(3)},
            "expected `path` as 0s and 1s of the shape of `weights` (2, 2), but got shape (3, 3)",
        ),
        (plot_sequence, (torch.eye(2), ["a"]), {}, "expected 2 names in `tags`, but got 1."),
        (plot_sequence, (torch.eye(2), None, "a"), {}, "expected 2 names in `tokens`, but got 1."),
        (
            plot_sequence,
            (fy.SequenceScores(torch.eye(3), torch.zeros(3, 3, 3)),),
            {},
            "expected means of transitions of shape (2, 3, 3), or (3, 3) if they are shared, but "
            "got (3, 3, 3).",
        ),
    ],
)
def test_errors(plot, args, kwargs, said):
    with pytest.raises(fy.FenchelError) as error:
        plot(*args, **kwargs)
    assert said in str(error.value)
