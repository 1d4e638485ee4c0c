"""A fitted pipeline as a PyTerrier transformer; PyTerrier is optional (`pip install python-terrier`)."""

from pathlib import Path
from typing import TYPE_CHECKING

from rerank.data.trec import ranked
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.folder import load_fitted
from rerank.utils.errors import UserError
from rerank.utils.texts import list_of_texts

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyterrier import Transformer


def open_artifact(path: str) -> "Transformer":
    """Opens a fitted pipeline's folder as a transformer; `pyterrier.Artifact.load` calls it."""
    return make_transformer(load_fitted(Path(path)))


def make_transformer(pipeline: Fitted) -> "Transformer":
    """The transformer of `Pipeline.transformer`. Raises ImportError if PyTerrier is not installed."""
    try:
        import pyterrier as pt
    except ModuleNotFoundError as error:
        raise ImportError("PyTerrier is not installed; run: pip install python-terrier") from error

    class PipelineTransformer(pt.Transformer):  # PyTerrier asks for a subclass
        """Ranks topics: columns qid and query in, qid, query, docno, score and rank out."""

        def transform(self, inp: "DataFrame") -> "DataFrame":
            import pandas as pd

            pt.validate.columns(inp, includes=["qid", "query"], context=self)
            queries = dict(zip(inp["qid"], list_of_texts("column query", inp["query"]), strict=True))
            texts = {str(qid): text for qid, text in queries.items()}
            for qid, text in zip(inp["qid"], inp["query"], strict=True):
                if texts[str(qid)] != text:
                    raise UserError(f"column qid: query {qid} has two texts; expected an id for each text")
            run = pipeline.rank_all(texts)[pipeline.answer]
            rows = [
                (qid, text, doc_id, run[str(qid)][doc_id], rank)
                for qid, text in queries.items()
                for rank, doc_id in enumerate(ranked(run.get(str(qid), {})))
            ]
            return pd.DataFrame(rows, columns=["qid", "query", "docno", "score", "rank"])

        def __repr__(self) -> str:
            return f"transformer of {pipeline.folder}"

    return PipelineTransformer()
