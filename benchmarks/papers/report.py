"""Collect what the recipes measured, and write the tables of the docs page "Evidence".

    python -m benchmarks.papers.report OUT DOCS

OUT has the directories ``inflection``, ``translation`` and ``grid`` that the recipes filled, and
``speed.json``; what is missing is left out. DOCS gets ``evidence.json``, all numbers in one file,
and one ``evidence_*.md`` for each table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
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
# The same, Tables 2 and 3 for German to English: BLEU, source words attended, target words.
TABLES_2_3 = {
    "lstm-softmax": (25.70, 24.25, 17993.0),
    "lstm-entmax": (26.17, 5.55, 16.13),
    "lstm-sparsemax": (24.69, 3.75, 7.55),
}
# Correia et al. (2019), Table 1 for German to English: BLEU; their output is softmax.
ADAPTIVE = {
    "transformer-softmax": 29.79,
    "transformer-entmax-attention": 29.83,
    "transformer-learned-attention": 29.90,
}
# Tokens a second against softmax as the two papers give them.
PAPER_SPEED = {
    "lstm": {"softmax": "1", "entmax 1.5": "0.90", "entmax 1.3": "0.72"},
    "transformer": {"softmax": "1", "entmax 1.5": "0.90", "learned": "0.75"},
}


def collect(directory: Path) -> dict[str, Any]:
    """All results, without what the tables and figures do not need."""
    found: dict[str, Any] = {
        part: [_brief(result, directory / part) for result in results(directory / part)]
        for part in ("inflection", "translation", "grid")
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
    brief = {key: result[key] for key in result if key not in ("training", "machine", "settings")}
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
    """Table 1 with what search proves, a row for each output and attention."""
    lines = [
        "| output | attention | accuracy | paper | ensemble | paper | one answer "
        "| all answers listed | proved best | tokens per step | minutes | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    together = {(e["output"], e["attention"]): e["measured"]["accuracy"] for e in ensembles}
    for (output, attention), (paper, paper_ensemble) in TABLE_1.items():
        runs = [r for r in found if (r["output"], r["attention"]) == (output, attention)]
        if not runs:
            continue

        def mean(name: str, runs: list[dict[str, Any]] = runs) -> float:
            return fmean(run["measured"][name] for run in runs)

        lines.append(
            f"| {NAMES[output]} | {NAMES[attention]} "
            f"| {_spread([100 * run['measured']['accuracy'] for run in runs])} | {paper:.2f} "
            f"| {_percent(together.get((output, attention)))} | {paper_ensemble:.2f} "
            f"| {100 * mean('dev_single'):.1f} % | {100 * mean('dev_exhaustive'):.1f} % "
            f"| {100 * mean('dev_certified'):.1f} % | {mean('dev_support'):.2f} "
            f"| {fmean(run['training']['minutes'] for run in runs):.0f} | {len(runs)} |"
        )
    return lines


def translation_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """Tables 2 and 3, and the Transformers of the other paper."""
    lines = [
        "| model | attention | output | BLEU | paper | token accuracy | source tokens attended "
        "| paper | target tokens | paper | minutes | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(run["name"].rsplit("-", 1)[0] for run in found))
    order = ("softmax", "entmax", "learned", "sparsemax")
    names.sort(key=lambda name: (name.split("-")[0], len(name.split("-")), _place(name, order)))
    for name in names:
        runs = [run for run in found if run["name"].rsplit("-", 1)[0] == name]
        bleu, attended, words = (f"{x:g}" for x in TABLES_2_3.get(name, (0.0, 0.0, 0.0)))
        if name not in TABLES_2_3:
            bleu, attended, words = (f"{ADAPTIVE[name]:.2f}" if name in ADAPTIVE else "–"), "–", "–"
        measured = [run["measured"] for run in runs]
        available = fmean(m["available"] for m in measured)
        lines.append(
            f"| {runs[0]['model']} | {_spec(runs[0]['attention'])} | {_spec(runs[0]['output'])} "
            f"| {_spread([m['bleu'] for m in measured])} | {bleu} "
            f"| {100 * fmean(m['token_accuracy'] for m in measured):.1f} % "
            f"| {fmean(m['attended'] for m in measured):.2f} of {available:.1f} | {attended} "
            f"| {fmean(m['target_words'] for m in measured):,.1f} | {words} "
            f"| {fmean(run['training']['minutes'] for run in runs):.0f} | {len(runs)} |"
        )
    return lines


def density_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """How dense each kind of attention of the Transformers is, and the learned α."""
    lines = [
        "| Transformer | encoder | decoder | cross | α of the encoder | of the decoder | cross |",
        "|---|---|---|---|---|---|---|",
    ]
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


def speed_table(found: dict[str, Any]) -> list[str]:
    """Tokens a second and ratios."""
    lines = [
        "| model | maps | tokens/s | against softmax | in the first fifth | paper "
        "| tokens with p > 0 |",
        "|---|---|---|---|---|---|---|",
    ]
    for comparison, entry in found.items():
        paper = PAPER_SPEED[comparison.split()[0]]
        for name, numbers in entry["models"].items():
            lines.append(
                f"| {comparison} | {name} | {numbers['late_tokens_per_second']:,.0f} "
                f"| {numbers['late_ratio']:.2f} | {numbers['early_ratio']:.2f} "
                f"| {paper.get(name, '–')} | {numbers['support_size']:,.0f} |"
            )
    return lines


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}"


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"


def _spec(spec: str) -> str:
    return {"entmax": "entmax 1.5", "entmax:learned": "learned α"}.get(spec, spec)


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name.split("-")[1])


def _flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("docs", type=Path)
    options = parser.parse_args()
    found = collect(options.out)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (options.docs / "evidence.json").write_text(text + "\n")
    for name, lines in (
        ("inflection", inflection_table(found["inflection"], found["ensembles"])),
        ("translation", translation_table(found["translation"])),
        ("density", density_table(found["translation"])),
        ("speed", speed_table(found["speed"])),
    ):
        if len(lines) > 2:  # more than a head
            (options.docs / f"evidence_{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
