"""What searches proved, to the number; and answers that do not depend on the batch."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch

from fenchel import FenchelError
from fenchel.decoding import Certificate, Hypothesis, SearchResult, Trace, TraceStep
from fenchel.models import build_model, model_config
from fenchel.tasks import (
    Example,
    Inflection,
    SearchOptions,
    Translation,
    _predict,
    evaluate,
    predict,
    search_statistics,
)

WORDS = [Example(word, word[::-1], ("V",), "x") for word in ("abc", "b", "ca", "abba", "cab")]


def result(kind: str, found: int, sizes: tuple[int, ...]) -> SearchResult:
    steps = tuple(TraceStep(4, 0.5, (4,), (0.5,), size, 0.5) for size in sizes)
    best = Hypothesis((4,), math.log(0.5), math.log(0.5), True, Trace((4,), steps, True))
    return SearchResult((best,), Certificate(kind, 0.0, 0.5, 1, ""), found, 1)


def test_statistics():
    results = [
        result("exhaustive", 1, (1, 1)),
        result("exhaustive", 3, (2, 1)),
        result("proved best", 1, (9,)),
        result("none", 1, (7, 1, 5)),
    ]
    assert search_statistics(results) == {
        "certified": 0.75,
        "exhaustive": 0.5,
        "single": 0.25,
        "support": 27 / 8,
    }


def test_statistics_take_results_one_at_a_time():
    """And keep none: a test set's traces would fill the memory."""
    alive = []

    def results():
        for _ in range(3):
            one = result("none", 1, (2,))
            alive.append(weakref.ref(one))
            yield one
            del one
            gc.collect()
            assert sum(reference() is not None for reference in alive) <= 1

    assert search_statistics(results())["support"] == 2
    with pytest.raises(FenchelError, match="expected at least one result, but got none"):
        search_statistics([])


@pytest.fixture(scope="module")
def model_and_task():
    task = Inflection.learn(WORDS)
    torch.manual_seed(0)
    sizes = dict(zip(("source_vocabulary", "target_vocabulary"), task.sizes, strict=True))
    return build_model(model_config("lstm", hidden=8, embedding=4, layers=1, **sizes)).eval(), task


def test_predictions_keep_their_order(model_and_task):
    model, task = model_and_task
    options = [SearchOptions(batch=batch, max_length=8, nbest=3) for batch in (1, 2, 64)]
    found = [list(predict(model, task, iter(WORDS), option)) for option in options]
    for predictions in found:
        assert [example for example, _ in predictions] == WORDS
        assert [r.best.tokens for _, r in predictions] == [r.best.tokens for _, r in found[0]]


def test_most_caps_what_traces_list(model_and_task):
    model, task = model_and_task
    sizes = {}
    for most in (1, None):
        options = SearchOptions(max_length=4, most=most)
        (_, found), *_ = predict(model, task, WORDS, options)
        sizes[most] = [len(step.support) for step in found.best.trace.steps]
    assert max(sizes[1]) == 1 < max(sizes[None])


def test_predictions_are_made_as_they_are_asked_for(model_and_task):
    read = []

    def examples():
        for word in WORDS:
            read.append(word)
            yield word

    model, task = model_and_task
    next(predict(model, task, examples(), SearchOptions(batch=2, max_length=4)))
    assert len(read) == 2


def test_evaluate_joins_both_kinds_of_numbers(model_and_task):
    model, task = model_and_task
    scores = evaluate(model, task, WORDS, SearchOptions(max_length=4))
    assert scores.keys() == {
        "accuracy", "edit_distance", "certified", "exhaustive", "single", "support",
    }  # fmt: skip


def test_an_empty_line_is_answered():
    task = Translation.learn([Example("ein Haus", "a house")], 262)
    sizes = dict(zip(("source_vocabulary", "target_vocabulary"), task.sizes, strict=True))
    model = build_model(model_config("lstm", hidden=8, embedding=4, layers=1, **sizes)).eval()
    (pair,) = predict(model, task, [Example("")], SearchOptions(max_length=3))
    assert pair[1].hypotheses


def test_options_are_checked():
    with pytest.raises(FenchelError) as error:
        SearchOptions(max_length=0)
    assert str(error.value) == (
        "--max-length: expected a whole number from 1 to 1,000,000, but got 0."
    )


def test_long_inputs_are_searched_in_smaller_batches(model_and_task, monkeypatch):
    model, task = model_and_task
    words = [Example("ab" * length, tags=("V",), group="x") for length in (1, 1, 20, 1, 1, 1)]
    whole = list(predict(model, task, words, SearchOptions(max_length=4)))
    shapes = []
    search = _predict.beam_search

    def seen(model, source, *arguments, **options):
        shapes.append(tuple(source.shape))
        return search(model, source, *arguments, **options)

    monkeypatch.setattr(_predict, "beam_search", seen)
    monkeypatch.setattr(_predict, "_TOKENS", 50)
    parts = list(predict(model, task, words, SearchOptions(max_length=4)))
    assert shapes == [(2, 4), (1, 42), (3, 4)]
    assert [example for example, _ in parts] == words
    for (_, one), (_, other) in zip(whole, parts, strict=True):
        assert one.best.tokens == other.best.tokens
