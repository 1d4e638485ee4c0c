"""The languages of documents and queries: Lucene has an analyzer for each, which finds, drops and stems words."""

from rerank.utils.errors import UserError

ENGLISH = "en"
"""The default: Anserini's English analyzer, Porter's stems without possessives and Lucene's stop words."""

ANALYZERS = {
    "ar": "ar.Arabic",
    "bg": "bg.Bulgarian",
    "bn": "bn.Bengali",
    "ca": "ca.Catalan",
    "ckb": "ckb.Sorani",
    "cs": "cz.Czech",
    "da": "da.Danish",
    "de": "de.German",
    "el": "el.Greek",
    "es": "es.Spanish",
    "et": "et.Estonian",
    "eu": "eu.Basque",
    "fa": "fa.Persian",
    "fi": "fi.Finnish",
    "fr": "fr.French",
    "ga": "ga.Irish",
    "gl": "gl.Galician",
    "hi": "hi.Hindi",
    "hu": "hu.Hungarian",
    "hy": "hy.Armenian",
    "id": "id.Indonesian",
    "it": "it.Italian",
    "ja": "ja.Japanese",
    "ko": "cjk.CJK",
    "lt": "lt.Lithuanian",
    "lv": "lv.Latvian",
    "ne": "ne.Nepali",
    "nl": "nl.Dutch",
    "no": "no.Norwegian",
    "pl": "morfologik.Morfologik",
    "pt": "pt.Portuguese",
    "pt-br": "br.Brazilian",
    "ro": "ro.Romanian",
    "ru": "ru.Russian",
    "sr": "sr.Serbian",
    "standard": "standard.Standard",
    "sv": "sv.Swedish",
    "ta": "ta.Tamil",
    "te": "te.Telugu",
    "th": "th.Thai",
    "tr": "tr.Turkish",
    "uk": "uk.UkrainianMorfologik",
    "zh": "cjk.CJK",
}
"""Code -> Lucene's analyzer: all of its languages, and "standard" (words in lower case) for any other language."""


def check_language(language: str) -> None:
    """Raises UserError, with all codes, for a language without an analyzer."""
    if language not in (ENGLISH, *ANALYZERS):
        codes = ", ".join(sorted({ENGLISH, *ANALYZERS}))
        raise UserError(
            f"--collection.language {language}: Lucene has no analyzer of that code; expected one of {codes}"
        )
