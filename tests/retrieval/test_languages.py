"""BM25 in other languages than English."""

import contextlib

import pytest

from rerank.config.languages import ANALYZERS, check_language
from rerank.retrieval.bm25 import retrieve
from rerank.retrieval.java import java_class
from rerank.retrieval.languages import open_analyzer
from rerank.retrieval.lucene_index import choose_index
from rerank.utils.errors import UserError
from tests.support.small_collection import write_german


def test_every_analyzer_is_one_that_lucene_has(tmp_path):
    analyze = java_class("io.anserini.analysis.AnalyzerUtils").analyze
    for language in ANALYZERS.keys() - {"th"}:
        assert len(analyze(open_analyzer(language), "Lift 123").toArray()) == 2, language
    with contextlib.suppress(UserError):  # only some builds of Java can find Thai words
        open_analyzer("th")


def test_anserinis_own_codes_mean_the_same_analyzers():
    for entry in java_class("io.anserini.analysis.AnalyzerMap").analyzerMap.entrySet().toArray():
        assert entry.getValue() == f"org.apache.lucene.analysis.{ANALYZERS[entry.getKey()]}Analyzer"


def test_an_index_is_named_by_its_language_unless_it_is_english(tmp_path):
    from rerank.data.collections import open_collection

    collection = open_collection(str(write_german(tmp_path / "stadt")))
    english, german = (choose_index("auto", collection, tmp_path / "cache", language=code) for code in ("en", "de"))
    assert german.name == english.name.replace("stadt-", "stadt-de-")
    assert retrieve(collection, depth=5, language="de").keys() > retrieve(collection, depth=5).keys()


@pytest.mark.parametrize("language", ["DE", "german", "", "de-at"])
def test_an_unknown_language_names_all_that_exist(language):
    with pytest.raises(UserError, match=r"Lucene has no analyzer of that code; expected one of ar, .*, en, .*, zh"):
        check_language(language)
