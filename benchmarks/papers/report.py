"""Collect what the recipes measured, and write the tables of the docs page "Evidence".

    python -m benchmarks.papers.report OUT DOCS RESULTS

OUT has the directories ``inflection``, ``translation`` and ``grid`` that the recipes filled,
``inflection_fast`` and ``translation_fast`` with models of another learning rate,
``inflection_long`` with models of more updates, and ``speed.json``; what is missing is left out.
DOCS gets one ``evidence_*.md`` for each table, RESULTS ``evidence.json``, all numbers in one file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.papers.runs import results

NAMES = {1.0: "softmax", 1.5: "entmax 1.5", 2.0: "sparsemax"}
# Peters et al. (2019), Table 1, medium: accuracy by (output, attention), the
# average of three runs, and that of their ensemble.
TABLE_1 = {
    (1.0, 1.0): (82.55, 85.68),
    (1.0, 1.5): (83.20, 85.63),
    (1.0, 2.0): (83.13, 85.65),
    (1.5, 1.0): (84.88, 86.38),
    (1.5, 1.5): (84.93, 86.55),
    (1.5, 2.0): (84.93, 86.59),
    (2.0, 1.0): (84.95, 86.41),
    (2.0, 1.5): (85.03, 86.61),
    (2.0, 2.0): (84.96, 86.47),
}
# BLEU for German to English: the same, Table 2, and Correia et al. (2019), Table 1, whose output is
# softmax. Both for another corpus.
BLEU = {
    "lstm-softmax": "25.70",
    "lstm-entmax": "26.17",
    "lstm-sparsemax": "24.69",
    "transformer-softmax": "29.79",
    "transformer-entmax-attention": "29.83",
    "transformer-learned-attention": "29.90",
}
# Peters et al. (2019), Table 3: source words attended, target words.
TABLE_3 = {
    "lstm-softmax": ("24.25", "17,993"),
    "lstm-entmax": ("5.55", "16.13"),
    "lstm-sparsemax": ("3.75", "7.55"),
}
# Tokens a second against softmax as the two papers give them.
PAPER_SPEED = {
    "lstm": {"softmax": "1", "entmax 1.5": "0.90", "entmax 1.3": "0.72"},
    "transformer": {"softmax": "1", "entmax 1.5": "0.90", "learned": "0.75"},
}


# Directories of models that were trained again, and the setting that was another one then.
AGAIN = {
    "inflection_fast": "train.learning_rate",
    "translation_fast": "train.learning_rate",
    "inflection_long": "train.max_steps",
}
PARTS = ("inflection", "translation", "grid", *AGAIN)


def collect(directory: Path) -> dict[str, Any]:
    """All results, without what the tables and figures do not need."""
    found: dict[str, Any] = {
        part: [_brief(result, directory / part) for result in results(directory / part)]
        for part in PARTS
    }
    found["ensembles"] = [
        {**result, "measured": _rounded(result["measured"])}
        for result in results(directory / "inflection" / "ensembles")
    ]
    speeds = directory / "speed.json"
    found["speed"] = json.loads(speeds.read_text()) if speeds.exists() else {}
    return found


def _brief(result: dict[str, Any], directory: Path) -> dict[str, Any]:
    training = result["training"]
    kept = {"steps": training["step"], "best_step": training["best_step"]}
    kept |= {"minutes": round(training["seconds"] / 60, 1)}
    brief = {key: result[key] for key in result if key != "training"}
    brief |= {"training": kept, "measured": _rounded(result["measured"])}
    if result["measured"].get("alphas"):
        brief["trajectories"] = _rounded(_alphas(directory / "runs" / result["name"]))
    return brief


def _alphas(run: Path) -> list[dict[str, Any]]:
    """The learned α of all heads as training went on."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{"step": line["step"], **line["alphas"]} for line in lines if "alphas" in line]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def inflection_table(
    found: Sequence[dict[str, Any]], ensembles: Sequence[dict[str, Any]]
) -> list[str]:
    """Table 1, a row for each output and attention."""
    lines = _head("| output | attention | accuracy | paper | ensemble | paper | minutes | seeds |")
    together = {
        (e["output"], e["attention"], *e["seeds"]): e["measured"]["accuracy"] for e in ensembles
    }
    for maps, runs in _by_maps(found):
        paper, paper_ensemble = TABLE_1[maps]
        seeds = sorted(run["seed"] for run in runs)
        accuracies = [100 * run["measured"]["accuracy"] for run in runs]
        lines.append(
            f"| {NAMES[maps[0]]} | {NAMES[maps[1]]} | {_spread(accuracies)} | {paper:.2f} "
            f"| {_percent(together.get((*maps, *seeds)))} | {paper_ensemble:.2f} "
            f"| {_minutes(runs)} | {len(runs)} |"
        )
    return lines


def certificate_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """What search proves on the dev sets, a row for each output and attention."""
    lines = _head(
        "| output | attention | one answer | all answers listed | proved best | tokens per step |"
    )
    for maps, runs in _by_maps(found):
        shares = [_mean(runs, f"dev_{name}") for name in ("single", "exhaustive", "certified")]
        lines.append(
            f"| {NAMES[maps[0]]} | {NAMES[maps[1]]} | "
            + " | ".join(f"{100 * share:.1f} %" for share in shares)
            + f" | {_mean(runs, 'dev_support'):.2f} |"
        )
    return lines


def bleu_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """Table 2, and the Transformers of the other paper."""
    lines = _head("| model | attention | output | BLEU | paper | right tokens | minutes | seeds |")
    for name, runs in _by_name(found):
        lines.append(
            f"| {_what(runs[0])} | {_spread([run['measured']['bleu'] for run in runs])} "
            f"| {BLEU.get(name, '–')} | {100 * _mean(runs, 'token_accuracy'):.1f} % "
            f"| {_minutes(runs)} | {len(runs)} |"
        )
    return lines


def nonzeros_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """Table 3, for all models."""
    lines = _head(
        "| model | attention | output | source tokens attended | paper | target tokens | paper |"
    )
    for name, runs in _by_name(found):
        attended, words = TABLE_3.get(name, ("–", "–"))
        lines.append(
            f"| {_what(runs[0])} | {_mean(runs, 'attended'):.2f} of "
            f"{_mean(runs, 'available'):.1f} | {attended} "
            f"| {_mean(runs, 'target_words'):,.1f} | {words} |"
        )
    return lines


def density_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """How dense each kind of attention of the Transformers is, and the learned α."""
    lines = _head(
        "| Transformer | encoder | decoder | cross | α of the encoder | of the decoder | cross |"
    )
    kinds = ("encoder", "decoder", "cross")
    for run in found:
        if run["model"] != "transformer" or run["seed"] != 0:
            continue
        cells = [f"{100 * fmean(_flat(run['measured']['density'][kind])):.0f} %" for kind in kinds]
        alphas = run["measured"]["alphas"]
        for kind in kinds:
            if alphas:
                values = _flat(alphas[kind])
                cells.append(f"{min(values):.2f} – {max(values):.2f}")
            else:
                alpha = {"softmax": "1", "entmax": "1.5", "sparsemax": "2"}[run["attention"]]
                cells.append(alpha)
        what = f"{_spec(run['attention'])}, output {_spec(run['output'])}"
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return lines


def again_table(found: dict[str, Any], setting: str, name: str) -> list[str]:
    """Models that were also trained with another value of a setting."""
    lines = _head(f"| model | attention | output | {name} | another |")
    scores = {"inflection": ("accuracy", 100), "translation": ("bleu", 1)}
    for part in (part for part, changed in AGAIN.items() if changed == setting):
        task = part.split("_")[0]
        score, unit = scores[task]
        first = {run["name"]: run for run in found[task]}
        for run in found[part]:
            maps = (_spec(NAMES.get(run[key], run[key])) for key in ("attention", "output"))
            results = (
                f"{_setting(one, setting)}: {unit * one['measured'][score]:.2f}"
                for one in (first[run["name"]], run)
            )
            what = f"{run.get('model', 'lstm')}, {task}"
            lines.append("| " + " | ".join([what, *maps, *results]) + " |")
    return lines


def grid_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """Figure 4: one α moved, the other at 1.5."""
    lines = _head(
        "| α | of the attention: right tokens | source tokens attended "
        "| of the output: right tokens | target tokens |"
    )
    by_alphas = {(run["attention"], run["output"]): run["measured"] for run in found}
    for alpha in sorted({alpha for alphas in by_alphas for alpha in alphas}):
        attention, output = by_alphas.get((alpha, 1.5)), by_alphas.get((1.5, alpha))
        cells = [
            "– | –" if one is None else f"{100 * one['token_accuracy']:.2f} % | {one[count]:,.1f}"
            for one, count in ((attention, "attended"), (output, "target_words"))
        ]
        lines.append(f"| {alpha:g} | {' | '.join(cells)} |")
    return lines


def speed_table(found: dict[str, Any]) -> list[str]:
    """Tokens a second and ratios."""
    lines = _head(
        "| model | maps | tokens/s | against softmax | in the first fifth | paper "
        "| tokens with p > 0 |"
    )
    for comparison, entry in found.items():
        paper = PAPER_SPEED[comparison.split()[0]]
        for name, numbers in entry["models"].items():
            lines.append(
                f"| {comparison.split(',')[0]} | {name} "
                f"| {numbers['late_tokens_per_second']:,.0f} "
                f"| {numbers['late_ratio']:.2f} | {numbers['early_ratio']:.2f} "
                f"| {paper.get(name, '–')} | {numbers['support_size']:,.0f} |"
            )
    return lines


def _head(columns: str) -> list[str]:
    """The first lines of a table, from the line that names its columns."""
    return [columns, "|" + "---|" * (columns.count("|") - 1)]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}"


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"


def _spec(spec: str) -> str:
    return {"entmax": "entmax 1.5", "entmax:learned": "learned α"}.get(spec, spec)


def _what(run: dict[str, Any]) -> str:
    return f"{run['model']} | {_spec(run['attention'])} | {_spec(run['output'])}"


def _mean(runs: Sequence[dict[str, Any]], name: str) -> float:
    return fmean(run["measured"][name] for run in runs)


def _minutes(runs: Sequence[dict[str, Any]]) -> str:
    return f"{fmean(run['training']['minutes'] for run in runs):.0f}"


def _by_maps(found: Sequence[dict[str, Any]]) -> Iterator[tuple[tuple[float, float], list[Any]]]:
    """The runs of all seeds for each output and attention, in the order of Table 1."""
    for maps in TABLE_1:
        runs = [run for run in found if (run["output"], run["attention"]) == maps]
        if runs:
            _check_alike(runs)
            yield maps, runs


def _by_name(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The runs of all seeds for each model of translation."""
    order = ("softmax", "entmax", "sparsemax", "learned", "entmax-attention", "learned-attention")
    for name in (f"{kind}-{maps}" for kind in ("lstm", "transformer") for maps in order):
        runs = [run for run in found if run["name"].rsplit("-", 1)[0] == name]
        if runs:
            _check_alike(runs)
            yield name, runs


def _check_alike(runs: Sequence[dict[str, Any]]) -> None:
    """Only seeds are averaged."""
    kinds = {
        tuple(s for s in run["settings"] if not s.startswith("train.seed=")): run["name"]
        for run in runs
    }
    if len(kinds) > 1:
        raise SystemExit(f"{', '.join(kinds.values())}: models of one row have other settings")


def _setting(run: dict[str, Any], name: str) -> str:
    """What a run was trained with; of two, the later one counts."""
    (*_, last) = (s for s in run["settings"] if s.startswith(f"{name}="))
    return last.removeprefix(f"{name}=")


def _flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("docs", type=Path)
    parser.add_argument("results", type=Path)
    options = parser.parse_args()
    found = collect(options.out)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (options.results / "evidence.json").write_text(text + "\n")
    for name, lines in (
        ("inflection", inflection_table(found["inflection"], found["ensembles"])),
        ("certificates", certificate_table(found["inflection"])),
        ("bleu", bleu_table(found["translation"])),
        ("nonzeros", nonzeros_table(found["translation"])),
        ("density", density_table(found["translation"])),
        ("rates", again_table(found, "train.learning_rate", "learning rate")),
        ("updates", again_table(found, "train.max_steps", "updates")),
        ("grid", grid_table(found["grid"])),
        ("speed", speed_table(found["speed"])),
    ):
        if len(lines) > 2:  # more than a head
            text = "\n".join(lines).replace(" ± ", "\u00a0±\u00a0")  # on one line of a cell
            (options.docs / f"evidence_{name}.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
