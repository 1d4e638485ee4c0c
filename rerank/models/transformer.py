"""A cross-encoder as a PyTerrier transformer; PyTerrier is optional (`pip install python-terrier`)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rerank.data.candidates import standardised
from rerank.models.scoring import finite_scores
from rerank.utils.texts import list_of_texts

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyterrier import Transformer


def make_transformer(
    predict: Callable[[list[tuple[str, str]]], np.ndarray], first_stage_weight: float, model: str
) -> "Transformer":
    """The transformer of `Reranker.transformer`. Raises ImportError if PyTerrier is not installed.

    predict: scores (query, document) texts; model: what the transformer's text says that it is of.
    """
    try:
        import pyterrier as pt
    except ModuleNotFoundError as error:
        raise ImportError("PyTerrier is not installed; run: pip install python-terrier") from error
    columns = ["qid", "query", "docno", "text", *(["score"] if first_stage_weight else [])]

    class RerankTransformer(pt.Transformer):  # PyTerrier asks for a subclass
        """Gives each row the score and the rank of a cross-encoder."""

        def transform(self, inp: "DataFrame") -> "DataFrame":
            """The rows in their order, with new scores and ranks."""
            pt.validate.columns(inp, includes=columns, context=self)
            queries, texts = (list_of_texts(f"column {name}", inp[name]) for name in ("query", "text"))
            scores = predict(list(zip(queries, texts, strict=True))).astype(float)
            if first_stage_weight:
                finite_scores("column score", inp["score"])
                added = inp.groupby("qid")["score"].transform(lambda given: standardised(list(given)))
                scores += first_stage_weight * added
            return pt.model.add_ranks(inp.assign(score=scores))

        def __repr__(self) -> str:
            return f"transformer of {model}"

    return RerankTransformer()
