"""Lucene's analyzers of languages, which find, drop and stem words."""

from typing import Any

from rerank.config.languages import ANALYZERS, check_language
from rerank.retrieval.java import java_class, java_error_in_one_line


def open_analyzer(language: str) -> Any:
    """Lucene's analyzer of a language other than English, which Anserini's indexer then takes for this code too.

    Raises UserError for an unknown language, and for one that this Java cannot split into words, as some have no Thai.
    """
    check_language(language)
    name = f"org.apache.lucene.analysis.{ANALYZERS[language]}Analyzer"
    with java_error_in_one_line(f"--collection.language {language}: Lucene cannot use it with this Java"):
        analyzer = java_class(name)()
        java_class("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, "word")  # Thai fails only now
    java_class("io.anserini.analysis.AnalyzerMap").analyzerMap.put(language, name)
    return analyzer
