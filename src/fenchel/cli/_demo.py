from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from fenchel.cli._demo_files import DemoFiles
from fenchel.cli._demo_report import (
    PICTURES,
    choose_unsure,
    draw_pictures,
    show_next,
    show_scores,
    show_unsure,
    show_worth,
)
from fenchel.cli._options import Count, Minutes, check_run_name
from fenchel.cli._output import make_console, note
from fenchel.decoding import SearchResult
from fenchel.models import Batch
from fenchel.tasks import (
    DataConfig,
    Example,
    Run,
    SearchOptions,
    predict,
    search_statistics,
    start_run,
    train_run,
)
from fenchel.tasks.demo_data import make_demo_data
from fenchel.tasks.inflection import read_inflection

_MODELS = {"entmax": "1.5-entmax", "softmax": "softmax"}
_LANGUAGES = ("english", "russian")
_PARTS = ("train", "dev", "test")
_TRIALS = 8
_SHARE = 0.9  # of the time; the rest is for validation and for slower moments
_SETTINGS = (
    "model.embedding=128",
    "model.hidden=256",
    "model.layers=1",
    "model.dropout=0.2",
    "train.batch_size=128",
    "train.learning_rate=0.003",
    "train.schedule=linear",
    "train.warmup_steps=50",
    "train.clip_norm=1.0",
    "train.patience=null",
    "train.max_epochs=null",
    "search.max_length=40",
)


@dataclass(frozen=True)
class Trial:
    """One model of the comparison: how fast it learned, and what it says of words it never saw."""

    run: Run
    steps: int
    tokens_per_second: float
    predictions: list[tuple[Example, SearchResult]]
    scores: dict[str, float]


def demo(
    *,
    out: Path = Path("out/demo"),
    steps: Count = 800,
    minutes: Minutes = 2.15,
    lemmas: Count = 4000,
) -> None:
    """Train on real English and Russian words and show its predictions for unseen words.

    Two models are trained, one with 1.5-entmax and one with softmax, and compared on lemmas that
    neither saw. Then come words of which the sparse model is unsure, each with the complete list of
    its forms, and pictures. At most five minutes on two cores.

    Args:
        out: Directory for data, models and pictures. What an earlier demo made there is replaced,
            and nothing else.
        steps: Updates of each model; fewer on a machine that is too slow for them.
        minutes: The time for each training.
        lemmas: Lemmas to train on, in each language.
    """
    check_run_name("--out", out)
    console = make_console(extra="demo", purpose="the demo")
    files = DemoFiles(out)
    names = [f"data/{language}-{part}" for language in _LANGUAGES for part in _PARTS]
    files.check(files=[*names, *PICTURES], runs=_MODELS)
    began = time.perf_counter()
    console.rule("[bold]fenchel demo: inflection with exact zeros")
    console.print(
        "\nA model reads a lemma and tags, and writes the form: draw V;V.PTCP;PST → drawn. With "
        "entmax, most characters have probability exactly 0 at each step. So search can list "
        "[i]all[/] forms that the model considers possible, and prove that it missed none."
    )
    data = _write_data(console, files, lemmas)
    trials: dict[str, Trial] = {}
    afforded = steps
    for name in _MODELS:
        trials[name] = _trial(console, name, files, data, afforded, minutes)
        afforded = max(1, trials[name].steps)  # as many for the other, which is no slower
    show_scores(console, {_MODELS[name]: trial for name, trial in trials.items()})
    show_worth(console, list(trials.values()), steps)
    sparse = trials["entmax"]
    unsure = choose_unsure(sparse.predictions)
    show_unsure(console, sparse.run.task, unsure)
    paths = draw_pictures(sparse.run.task, unsure, files)
    show_next(console, paths, out, time.perf_counter() - began)


def _write_data(console: Any, files: DemoFiles, lemmas: int) -> dict[str, list[Path]]:
    with console.status("taking words out of lemminflect and pymorphy3 …"):
        texts = make_demo_data(lemmas=lemmas, held_out=max(lemmas // 12, 1))
    data: dict[str, list[Path]] = {part: [] for part in _PARTS}
    counts = dict.fromkeys(_PARTS, 0)
    for language in _LANGUAGES:
        for part in _PARTS:
            text = texts[f"{language}-{part}"]
            data[part].append(files.replace(f"data/{language}-{part}", text.encode()))
            counts[part] += text.count("\n")
    console.print(
        f"\n[b]Data[/]      {lemmas:,} lemmas of English (lemminflect) and of Russian (pymorphy3)\n"
        f"          {counts['train']:,} forms to learn from, {counts['test']:,} of other lemmas to "
        "be tested on"
    )
    return data


def _trial(
    console: Any,
    name: str,
    files: DemoFiles,
    data: dict[str, list[Path]],
    steps: int,
    minutes: float,
) -> Trial:
    directory = files.clear_run(name)
    config = DataConfig(tuple(map(str, data["train"])), tuple(map(str, data["dev"])))
    settings = [*_SETTINGS, f"model.attention={name}", f"model.output={name}"]
    settings += [f"train.max_steps={steps}", f"train.max_minutes={minutes}"]
    run = start_run(directory, "inflection", config, settings=settings)
    files.mark_run(name)
    console.print(f"\n[b]Training[/]  {_MODELS[name]} attention and output", soft_wrap=True)
    if name == "entmax":
        with console.status("timing a few updates …"):
            affordable = affordable_steps(run, steps, minutes)
        if affordable < steps:
            console.print(
                f"          time for {affordable} of {steps} updates on this machine, as busy as "
                "it is now; `fenchel demo --minutes 10` gives it more",
                soft_wrap=True,
            )
        train = replace(run.config.train, max_steps=affordable)
        run = replace(run, config=replace(run.config, train=train))
    result = train_run(run, note=note)
    console.print(
        f"          {result.step} updates in {result.seconds:.0f} s, "
        f"{result.tokens_per_second:,.0f} characters/s"
    )
    examples = [example for path in data["test"] for example in read_inflection(path)]
    with console.status("searching for the forms of words it never saw …"):
        options = SearchOptions(nbest=20, max_length=run.config.search.max_length, batch=256)
        found = list(predict(run.model(), run.task, examples, options))
    answers = [run.task.decode(result.best.tokens) for _, result in found]
    scores = run.task.score(examples, answers)
    scores |= search_statistics([result for _, result in found])
    return Trial(run, result.step, result.tokens_per_second, found, scores)


def affordable_steps(run: Run, steps: int, minutes: float) -> int:
    """How many of ``steps`` updates this machine makes in the time: the schedule has to end in it.

    A few updates of a throw-away model are timed; the run itself is not touched.
    """
    if steps <= _TRIALS:
        return steps
    data, size = run.config.data, run.config.train.batch_size
    pairs = [run.task.pair(example) for example in run.task.read_gold(data.train, data.language)]
    with torch.random.fork_rng(devices=[]):
        seconds = median(_seconds_per_token(run, pairs, size))
    tokens = size * fmean(len(target) + 1 for _, target in pairs)
    return max(1, min(steps, int(60 * minutes * _SHARE / (seconds * tokens))))


def _seconds_per_token(
    run: Run, pairs: list[tuple[list[int], list[int]]], size: int
) -> list[float]:
    model = run.new_model().train()
    optimizer = torch.optim.Adam(model.parameters())
    # As in training, a batch has pairs of about one length, and there are all lengths.
    spread = sorted(pairs[:: max(1, len(pairs) // (size * _TRIALS))], key=lambda pair: len(pair[1]))
    seconds = []
    for start in range(0, len(spread), size):
        batch = Batch.collate(spread[start : start + size])
        began = time.perf_counter()
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
        seconds.append((time.perf_counter() - began) / batch.tokens)
    return seconds[1:] or seconds  # the first warms up
