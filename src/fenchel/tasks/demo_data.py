"""Real inflection data that packages on PyPI ship, for ``fenchel demo``.

English comes from the lookup table of lemminflect; Russian from the dictionary of pymorphy3, of
which only the lemmas are taken that its corpus attests. Both are written in the format of the
shared task, with tags as UniMorph spells them, and split by lemma.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fenchel._checks import FenchelError
from fenchel._compat import require

Cell = tuple[str, str]  # form, tags
Paradigm = dict[str, list[Cell]]  # lemma → its cells

_ENGLISH = {
    "VBD": "V;PST",
    "VBN": "V;V.PTCP;PST",
    "VBG": "V;V.PTCP;PRS",
    "VBZ": "V;3;SG;PRS",
    "NNS": "N;PL",
    "JJR": "ADJ;CMPR",
    "JJS": "ADJ;SPRL",
}
_RUSSIAN = {
    "NOUN": "N", "VERB": "V", "ADJF": "ADJ",
    "nomn": "NOM", "gent": "GEN", "datv": "DAT", "accs": "ACC", "ablt": "INS", "loct": "ESS",
    "sing": "SG", "plur": "PL", "masc": "MASC", "femn": "FEM", "neut": "NEUT",
    "1per": "1", "2per": "2", "3per": "3", "pres": "PRS", "futr": "FUT", "past": "PST",
    "impr": "IMP",
}  # fmt: skip
# Names, and forms beside the usual one: archaic, informal, with -ою, second cases.
_LEFT_OUT = {
    "Abbr", "Name", "Surn", "Patr", "Geox", "Orgn", "Trad", "Init", "Fixd", "Sgtm", "Pltm", "Subx",
    "Apro", "Anum", "Supr", "Cmp2", "V-oy", "V-ey", "V-ie", "V-be", "V-sh", "V-bi", "Infr", "Slng",
    "Arch", "Litr", "Erro", "Dist", "gen1", "gen2", "acc2", "loc1", "loc2", "voct", "incl",
    "impe", "impx", "mult", "intg", "Prnt", "Coll", "Ques", "Dmns", "Poss",
}  # fmt: skip


def write_demo_data(
    directory: Path, *, lemmas: int = 4000, cells: int = 4, held_out: int = 300, seed: int = 0
) -> dict[str, list[Path]]:
    """Write ``LANG-train``, ``LANG-dev`` and ``LANG-test`` for both languages.

    Args:
        directory: where to; made if it is not there.
        lemmas: how many lemmas to train on, in each language.
        cells: how many forms of each, at most.
        held_out: how many further lemmas go into ``dev``, and as many into ``test``.
        seed: of the choice.

    Returns:
        The files of each of the three sets.
    """
    files: dict[str, list[Path]] = {"train": [], "dev": [], "test": []}
    texts = make_demo_data(lemmas=lemmas, cells=cells, held_out=held_out, seed=seed)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = directory / name
        path.write_text(text, "utf-8")
        files[name.partition("-")[2]].append(path)
    return files


def make_demo_data(
    *, lemmas: int = 4000, cells: int = 4, held_out: int = 300, seed: int = 0
) -> dict[str, str]:
    """What :func:`write_demo_data` writes, by the files' names: ``english-train`` and so on."""
    texts = {}
    for language, source in (("english", english), ("russian", russian)):
        choice = random.Random(seed)
        needed = lemmas + 2 * held_out
        paradigms = source(needed, choice)
        if len(paradigms) < needed:
            raise FenchelError(
                f"--lemmas: expected at most {len(paradigms) * lemmas // needed:,}, because "
                f"{language.capitalize()} has {len(paradigms):,} in all, of which a part is kept "
                f"for validation and test, but got {lemmas:,}."
            )
        chosen = list(paradigms)
        dev, test = lemmas, lemmas + held_out
        for name, part in (
            ("train", chosen[:dev]), ("dev", chosen[dev:test]), ("test", chosen[test:])
        ):  # fmt: skip
            texts[f"{language}-{name}"] = "".join(_lines(part, paradigms, cells, choice))
    return texts


def english(count: int, choice: random.Random) -> Paradigm:
    """Forms of English verbs, nouns and adjectives, by lemma, for ``count`` of them or all."""
    need = {"extra": "demo", "purpose": "the English data"}
    require("lemminflect", **need)
    config = require("lemminflect.config", **need)
    codec = require("lemminflect.codecs.InflectionLUCodec", **need).InflectionLUCodec
    table: dict[str, dict[str, tuple[str, ...]]] = codec.load(config.inflection_lu_fn)
    paradigms: Paradigm = {}
    for lemma, forms in table.items():
        if not re.fullmatch("[a-z]{2,12}", lemma):
            continue
        if "VBD" in forms:
            forms = {"VBN": forms["VBD"]} | forms  # where both are the same, one is listed
        elif len(lemma) > 7:
            continue  # long nouns are mostly technical, and regular
        cells = [
            (forms[tag][0], name)
            for tag, name in _ENGLISH.items()
            if tag in forms and re.fullmatch("[a-z]+", forms[tag][0])
            if tag[0] == "V" or lemma not in forms[tag]  # else it has no plural, or none alone
        ]
        if cells:
            paradigms[lemma] = cells
    chosen = choice.sample(sorted(paradigms), min(count, len(paradigms)))
    return {lemma: paradigms[lemma] for lemma in chosen}


def russian(count: int, choice: random.Random) -> Paradigm:
    """Forms of Russian nouns, verbs and adjectives, by lemma, for ``count`` of them or all."""
    analyzer, words = _attested()
    paradigms: Paradigm = {}
    for word in choice.sample(words, len(words)):
        if len(paradigms) == count:
            break
        parse = analyzer.parse(word)[0]
        lemma = parse.normal_form
        if lemma not in paradigms and re.fullmatch("[а-яё]{3,12}", lemma):
            cells = list(_russian_cells(parse))
            if len(cells) > 2:
                paradigms[lemma] = cells
    return paradigms


@cache
def _attested() -> tuple[Any, list[str]]:
    """The analyzer, and the words whose tags it has counted in a corpus."""
    analyzer = require("pymorphy3", extra="demo", purpose="the Russian data").MorphAnalyzer()
    counted = analyzer.prob_estimator.p_t_given_w.iterkeys("")
    return analyzer, sorted({key.split(":")[0] for key in counted})


def _russian_cells(parse: Any) -> Iterator[Cell]:
    seen = set()
    for form in parse.lexeme:
        grammemes = re.split("[ ,]", str(form.tag))
        if grammemes[0] not in _RUSSIAN or not _LEFT_OUT.isdisjoint(grammemes):
            continue
        if grammemes[0] == "NOUN":  # its gender is the lemma's, not the form's
            grammemes = [g for g in grammemes if g not in ("masc", "femn", "neut")]
        elif "anim" in grammemes or "inan" in grammemes:
            continue  # adjectives in the accusative
        tags = ";".join(_RUSSIAN[g] for g in grammemes if g in _RUSSIAN)
        if tags not in seen and form.word != parse.normal_form:
            seen.add(tags)
            yield form.word, tags


def _lines(
    lemmas: list[str], paradigms: Paradigm, cells: int, choice: random.Random
) -> Iterator[str]:
    for lemma in lemmas:
        forms = paradigms[lemma]
        for form, tags in choice.sample(forms, min(cells, len(forms))):
            yield f"{lemma}\t{form}\t{tags}\n"
