from __future__ import annotations

import os
from pathlib import Path

from fenchel._before_torch import INTERRUPTED
from fenchel._checks import FenchelError
from fenchel.cli._options import Files, Flag, Language, Settings, check_run_name
from fenchel.cli._output import note
from fenchel.tasks import DataConfig, prepare_run, train_run
from fenchel.tasks.files import STDIN
from fenchel.tasks.run_config import ModelKind
from fenchel.training.distributed import join_ranks


def inflection(
    *,
    run: Path,
    train: Files = None,
    dev: Files = None,
    language: Language | None = None,
    model: ModelKind | None = None,
    settings: Settings = None,
    resume: Flag = False,
    quiet: Flag = False,
) -> int:
    """Learn to inflect words: from lemma and tags to form.

    Files have lines of lemma TAB form TAB tags, the tags joined by semicolons. A file's name tells
    its language: english-train-high. Several languages make one model.

    Args:
        run: Directory to write; new or empty, unless --resume.
        train: Files to train on.
        dev: Files to validate on.
        language: The language of all files, instead of what their names say.
        model: The kind of model; lstm unless named.
        settings: Settings as key=value, for example model.hidden=200 train.max_epochs=20;
            config.yaml in a run directory lists all of them.
        resume: Continue the run; files need not be named again.
        quiet: Show no progress.
    """
    data = DataConfig(tuple(train or ()), tuple(dev or ()), language)
    return _train("inflection", run, data, model, settings or [], resume, quiet)


def translation(
    *,
    run: Path,
    train: Files = None,
    dev: Files = None,
    model: ModelKind | None = None,
    settings: Settings = None,
    resume: Flag = False,
    quiet: Flag = False,
) -> int:
    """Learn to translate from parallel text.

    Files are one of lines source TAB target, or two whose lines belong together. Words are split by
    byte pair encoding, learned from the training text.

    Args:
        run: Directory to write; new or empty, unless --resume.
        train: One file or two to train on.
        dev: One file or two to validate on.
        model: The kind of model; lstm unless named.
        settings: Settings as key=value, for example task.vocabulary=4000 task.joint=false;
            config.yaml in a run directory lists all of them.
        resume: Continue the run; files need not be named again.
        quiet: Show no progress.
    """
    data = DataConfig(tuple(train or ()), tuple(dev or ()))
    return _train("translation", run, data, model, settings or [], resume, quiet)


def summarization(
    *,
    run: Path,
    train: Files = None,
    dev: Files = None,
    model: ModelKind | None = None,
    settings: Settings = None,
    resume: Flag = False,
    quiet: Flag = False,
) -> int:
    """Learn to summarize from parallel text, as translation, scored by ROUGE.

    Args:
        run: Directory to write; new or empty, unless --resume.
        train: One file or two to train on.
        dev: One file or two to validate on.
        model: The kind of model; lstm unless named.
        settings: Settings as key=value; config.yaml in a run directory lists all of them.
        resume: Continue the run; files need not be named again.
        quiet: Show no progress.
    """
    data = DataConfig(tuple(train or ()), tuple(dev or ()))
    return _train("summarization", run, data, model, settings or [], resume, quiet)


def _train(
    task: str,
    directory: Path,
    data: DataConfig,
    model: ModelKind | None,
    settings: list[str],
    resume: bool,
    quiet: bool,
) -> int:
    with join_ranks() as ranks:
        with ranks.all_or_none():
            check_run_name("--run", directory)
            for flag, files in (("--train", data.train), ("--dev", data.dev)):
                for name in files:
                    _check_repeatable(flag, name)
        run, resume = prepare_run(
            directory, task, data, ranks, model=model, settings=settings, resume=resume
        )
        result = train_run(run, resume=resume, note=note, show_progress=not quiet)
    interrupted = result.reason == "interrupted"
    if interrupted and ranks.leads:
        note(f"interrupted at step {result.step}; add `--resume` to the command to go on.")
    elif not quiet and ranks.leads:
        best = "none" if result.best is None else f"{result.best:.4f}"
        note(
            f"{directory}: done after {result.epoch} epochs ({result.reason}), "
            f"best {run.config.train.metric} {best} at step {result.best_step}."
        )
    return INTERRUPTED if interrupted else 0


def _check_repeatable(flag: str, name: str) -> None:
    """Refuse what can be read only once, as a pipe: training reads its files again."""
    special = os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name)
    if name == STDIN or special:
        raise FenchelError(
            f"{flag}: expected files, which are read more than once, but got {name}, which is "
            f"{'standard input' if name == STDIN else 'none'}; save it to a file first."
        )
