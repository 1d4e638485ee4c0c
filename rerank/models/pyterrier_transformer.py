"""A PyTerrier transformer that scores (query, document) texts. PyTerrier is optional: `pip install python-terrier`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rerank.data.candidates import standardised

COLUMNS = ["qid", "query", "docno", "text"]
"""What the transformer reads, and score if the model adds it; it sets score and rank, and keeps other columns."""


def make_transformer(predict: Callable[[Sequence[tuple[str, str]]], np.ndarray], weight: float) -> Any:
    """The transformer of `Reranker.transformer`; `weight` is that of the first stage's scores.

    Raises ImportError if PyTerrier is not installed.
    """
    try:
        import pyterrier as pt
    except ModuleNotFoundError as error:
        raise ImportError("PyTerrier is not installed; run: pip install python-terrier") from error

    class RerankTransformer(pt.Transformer):  # PyTerrier asks for a subclass
        """Gives each row the score and the rank of a cross-encoder."""

        def transform(self, inp: Any) -> Any:
            """The rows in their order, with new scores and ranks."""
            pt.validate.columns(inp, includes=[*COLUMNS, "score"] if weight else COLUMNS, context=self)
            for docno, text in zip(inp["docno"], inp["text"], strict=True):
                if not isinstance(text, str):
                    raise TypeError(f"document {docno}: expected its text in the column text, got {text!r}")
            scores = predict(list(zip(inp["query"], inp["text"], strict=True))).astype(float)
            if weight:
                scores += weight * inp.groupby("qid")["score"].transform(lambda given: standardised(list(given)))
            return pt.model.add_ranks(inp.assign(score=scores))

    return RerankTransformer()
