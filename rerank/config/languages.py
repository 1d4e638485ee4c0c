"""The languages of documents and queries: Lucene's analyzer of a language tokenises, drops stop words and stems."""

from rerank.utils.errors import UserError

ENGLISH = "en"
"""The default: Anserini's English analyzer with Porter's stemmer, which drops possessives and Lucene's stop words."""

BY_CODE = """
ar.Arabic bg.Bulgarian bn.Bengali ca.Catalan ckb.Sorani da.Danish de.German el.Greek es.Spanish et.Estonian
eu.Basque fa.Persian fi.Finnish fr.French ga.Irish gl.Galician hi.Hindi hu.Hungarian hy.Armenian id.Indonesian
it.Italian ja.Japanese lt.Lithuanian lv.Latvian ne.Nepali nl.Dutch no.Norwegian pt.Portuguese ro.Romanian
ru.Russian sr.Serbian standard.Standard sv.Swedish ta.Tamil te.Telugu th.Thai tr.Turkish uk.UkrainianMorfologik
"""
"""Languages whose package in Lucene is named by the language code."""
ANALYZERS = {
    **{name.partition(".")[0]: name for name in BY_CODE.split()},
    "cs": "cz.Czech",
    "ko": "cjk.CJK",
    "pl": "morfologik.Morfologik",
    "pt-br": "br.Brazilian",
    "zh": "cjk.CJK",
}
"""Code -> Lucene's analyzer, for all its languages; "standard" (lower-cased words) is for any other language."""


def check_language(language: str) -> None:
    """Raises UserError, with all codes, for a language without an analyzer."""
    if language not in (ENGLISH, *ANALYZERS):
        codes = ", ".join(sorted({ENGLISH, *ANALYZERS}))
        what = f"--collection.language {language}: Lucene has no analyzer of that code"
        raise UserError(f"{what}; expected one of {codes}")
