"""The demo's data: real words, in the shared task's format, split by lemma."""

from __future__ import annotations

import random

import pytest

from fenchel.tasks.demo_data import english, russian, write_demo_data
from fenchel.tasks.inflection import read_inflection

pytest.importorskip("lemminflect")
pytest.importorskip("pymorphy3")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_demo_data(tmp_path_factory.mktemp("data"), lemmas=40, cells=2, held_out=10)


def test_sets_share_no_lemma(files):
    for language in range(2):
        lemmas = [
            {example.source for example in read_inflection(files[name][language])}
            for name in ("train", "dev", "test")
        ]
        assert [len(part) for part in lemmas] == [40, 10, 10]
        assert not lemmas[0] & lemmas[1] and not lemmas[0] & lemmas[2]
        assert not lemmas[1] & lemmas[2]


def test_cells_bound_the_forms_of_a_lemma(files):
    for path in files["train"]:
        lemmas = [example.source for example in read_inflection(path)]
        assert max(map(lemmas.count, lemmas)) == 2


def test_languages_are_in_the_names(files):
    assert [path.name for path in files["test"]] == ["english-test", "russian-test"]


def test_seed_decides(tmp_path):
    first, again, other = (
        write_demo_data(tmp_path / str(i), lemmas=5, held_out=1, seed=seed)["train"][0].read_text()
        for i, seed in enumerate((0, 0, 1))
    )
    assert first == again != other


def test_english_has_irregular_forms():
    paradigms = english(10_000, random.Random(0))
    assert ("drew", "V;PST") in paradigms["draw"]
    assert ("drawn", "V;V.PTCP;PST") in paradigms["draw"]
    assert ("walked", "V;V.PTCP;PST") in paradigms["walk"]  # not listed: as the past
    assert ("bigger", "ADJ;CMPR") in paradigms["big"]
    assert ("mice", "N;PL") in paradigms["mouse"]


def test_russian_forms():
    paradigms = russian(300, random.Random(0))
    assert len(paradigms) == 300
    tags = {tag for cells in paradigms.values() for _, tags in cells for tag in tags.split(";")}
    assert {"N", "ADJ", "V", "GEN", "PL", "PST"} <= tags
    assert all(form != lemma for lemma, cells in paradigms.items() for form, _ in cells)
