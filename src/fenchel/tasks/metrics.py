"""How good answers are: distances of strings, and the scores of texts by their libraries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from fenchel._compat import require


def edit_distance(one: str, other: str) -> int:
    """Levenshtein's distance: the fewest insertions, deletions and substitutions of characters.

    Example:
        >>> from fenchel.tasks.metrics import edit_distance
        >>> edit_distance("drawed", "drawn")
        2
    """
    above = list(range(len(other) + 1))
    for i, character in enumerate(one, 1):
        row = [i]
        for j, opposite in enumerate(other, 1):
            row.append(min(row[-1] + 1, above[j] + 1, above[j - 1] + (character != opposite)))
        above = row
    return above[-1]


def bleu_and_chrf(answers: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of a corpus, from 0 to 100, by sacrebleu with its default settings."""
    metrics = require("sacrebleu.metrics", extra="train", purpose="BLEU")
    references = [list(gold)]
    # effective_order changes nothing unless there is no 4-gram at all, which sacrebleu warns about;
    # force changes nothing but its advice to detokenize, which at each validation is noise.
    metric = metrics.BLEU(effective_order=True, force=True)
    bleu = metric.corpus_score(list(answers), references).score
    return {"bleu": bleu, "chrf": metrics.CHRF().corpus_score(list(answers), references).score}


class _Words:
    """Words of any script: the library's own tokenizer drops all but a-z and digits."""

    def tokenize(self, text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())


def rouge(answers: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L, from 0 to 100, by rouge-score, without stemming."""
    names = ["rouge1", "rouge2", "rougeL"]
    library = require(
        "rouge_score.rouge_scorer", extra="train", purpose="ROUGE", package="rouge-score"
    )
    scorer = library.RougeScorer(names, tokenizer=_Words())
    scores = [scorer.score(g, a) for a, g in zip(answers, gold, strict=True)]
    keys = {"rouge1": "rouge_1", "rouge2": "rouge_2", "rougeL": "rouge_l"}
    return {key: 100 * fmean(s[name].fmeasure for s in scores) for name, key in keys.items()}
