"""`fenchel demo`: a short one runs to its end; the words it shows are the doubtful ones."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest
import torch

from fenchel.cli._demo_files import DemoFiles
from fenchel.cli._demo_report import choose_unsure, draw_pictures, show_unsure, show_worth
from fenchel.decoding import Certificate, Hypothesis, SearchResult, Trace, TraceStep
from fenchel.models import EOS
from fenchel.tasks import Example, Inflection, open_run

pytest.importorskip("lemminflect")
pytest.importorskip("pymorphy3")
pytest.importorskip("matplotlib")

EXAMPLES = [
    Example(lemma, lemma.upper(), ("V",), group)
    for lemma, group in (("ab", "x"), ("ba", "x"), ("aa", "x"), ("bb", "y"))
]
TASK = Inflection.learn([Example("ab", "ABab", ("V",), "x"), Example("b", "B", ("V",), "y")])


def result(*probabilities: float, kind: str = "exhaustive") -> SearchResult:
    hypotheses = []
    for number, probability in enumerate(probabilities):
        token = TASK.encode_target("ABab"[number])[0]
        first = TraceStep(
            token, probability, (token,), (probability,), 1, 0.0, (1.0, 0.0, 0.0, 0.0)
        )
        last = TraceStep(EOS, 1.0, (EOS,), (1.0,), 1, 0.0, (0.0, 0.5, 0.5, 0.0))
        trace = Trace((token,), (first, last), True)
        score = math.log(probability)
        hypotheses.append(Hypothesis((token,), score, score, True, trace))
    found = len(hypotheses)
    return SearchResult(tuple(hypotheses), Certificate(kind, 0.0, 1.0, found, ""), found, 1)


def test_languages_take_turns_and_doubt_ranks():
    predictions = [
        (EXAMPLES[0], result(0.9, 0.1)),
        (EXAMPLES[1], result(0.5, 0.5)),
        (EXAMPLES[2], result(0.4, 0.3, 0.3, kind="none")),  # not all were found
        (EXAMPLES[3], result(0.8, 0.2)),
        (EXAMPLES[1], result(0.6, 0.4)),  # a lemma that is shown already
        (EXAMPLES[2], result(1.0)),  # sure
    ]
    chosen = choose_unsure(predictions, 3)
    assert [example.source for example, _ in chosen] == ["ba", "bb", "ab"]
    assert chosen[0][1].best.probability == pytest.approx(0.5)
    assert choose_unsure(predictions, 1) == chosen[:1]
    assert choose_unsure(predictions[-1:]) == []


def test_lists_are_complete(capsys):
    from rich.console import Console

    example = Example("ab", "B", ("V",), "x")
    show_unsure(Console(width=100), TASK, [(example, result(0.75, 0.25))])
    out = capsys.readouterr().out
    assert "75.0%" in out and "25.0%" in out and "100.0% in all" in out
    assert [line.split()[:2] for line in out.splitlines() if "✓" in line and "25" in line] == [
        ["✓", "B"]
    ]


def test_pictures(tmp_path):
    files = DemoFiles(tmp_path)
    paths = draw_pictures(TASK, [(EXAMPLES[0], result(0.75, 0.25))], files)
    assert [path.name for path in paths] == ["beam-1.png", "attention-1.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_steps_fit_the_time(trained):
    from fenchel.cli._demo import affordable_steps

    run = open_run(trained[0])
    before = torch.get_rng_state()
    assert affordable_steps(run, 10_000, 0.001) < affordable_steps(run, 10_000, 1.0)
    assert affordable_steps(run, 50, 60.0) == 50
    assert affordable_steps(run, 50, 1e-9) == 1
    assert (torch.get_rng_state() == before).all()


@dataclass(frozen=True)
class Measured:
    accuracy: float
    steps: int
    tokens_per_second: float = 1.0

    @property
    def scores(self):
        return {"accuracy": self.accuracy}


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([Measured(0.6, 800), Measured(0.4, 800)], None),
        ([Measured(0.6, 418), Measured(0.0, 418)], None),
        (
            [Measured(0.6, 120), Measured(0.4, 120)],
            "only 120 of 800 updates fitted into the time. It shows",
        ),
        (
            [Measured(0.088, 418), Measured(0.0, 418)],
            "the better model has 8.8% of the forms right. It shows",
        ),
        (
            [Measured(0.0, 9), Measured(0.0, 9)],
            "only 9 of 800 updates fitted into the time and the better model has 0.0% of",
        ),
    ],
)
def test_a_comparison_that_means_nothing_says_so(capsys, trials, said):
    from rich.console import Console

    show_worth(Console(width=1000), trials, 800)
    out = capsys.readouterr().out
    assert out == "" if said is None else f"This comparison means nothing: {said}" in out


def test_short_demo(tmp_path, fenchel):
    words = ["demo", "--out", tmp_path, "--lemmas", 20, "--steps", 2]
    done = fenchel(*words)
    assert done.code == 0
    for text in ("1.5-entmax", "softmax", "right forms, English", "one certified string"):
        assert text in done.out
    assert "by `fenchel demo --steps 800`." in " ".join(done.out.split())
    assert (tmp_path / "entmax" / "run.json").exists()
    assert (
        fenchel("predict", "--run", tmp_path / "entmax", tmp_path / "data/english-test").code == 0
    )
    words[-1] = 9  # again, over its own directory, without time for so many
    done = fenchel(*words, "--minutes", 0.0001)
    assert done.code == 0 and "time for 1 of 9 updates on this machine" in done.out
    assert re.search(r"updates in training +(\d) +\1 ", done.out)  # both models alike
    assert "train longer, for example by `fenchel demo --minutes 10`" in " ".join(done.out.split())
