"""The model card of a bi-encoder with a query adapter."""

from pathlib import Path
from typing import Any

from rerank.config import Config
from rerank.data.types import Fold
from rerank.experiments.model_card import (
    closing,
    describe_measures,
    describe_training,
    front_matter,
    made_with,
    write_parts,
)

_USE = """## Use

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/or/name")
scores = model.similarity(model.encode_query([query]), model.encode_document(documents))[0]
```

With rerank, `rerank retrieve --first-stage.encoder path/or/name` searches a collection. The vectors of documents are
those of `{encoder}`{unit}, so an index of these can be kept; only queries have other vectors. The similarity is the dot
product: the vectors of queries are not of length 1.
"""

_FIRST_STAGE = """## First stage

The adapter was trained to add the first stage's scores: the score of a document is the similarity plus {weight:g} times
the first stage's score, which has a mean of 0 and a standard deviation of 1 over the candidates of the query. The model
gives the similarity alone; `rerank fuse` adds the scores of two runs.
"""


def write_adapter_card(checkpoint: Path, config: Config, collection: str, fold: Fold, facts: dict[str, Any]) -> None:
    """Writes the card of a fold's adapter, or of the final one; `facts` are those of its manifest."""
    weight, encoder = config.encoder.first_stage_weight, config.encoder.name
    unit = ", divided by their length" if facts["adapter"]["similarity"] == "cosine" else ""
    tags = ["sentence-transformers", "query-adapter", "rerank"]
    parts = [
        f"---\n{front_matter(encoder, 'sentence-similarity', tags)}\n---",
        f"# Bi-encoder for {collection}",
        f"Retrieves documents: `{encoder}` with a matrix, trained on judged queries, which the vectors of queries are "
        f"multiplied by. {made_with()}",
        _USE.format(encoder=encoder, unit=unit),
        *([_FIRST_STAGE.format(weight=weight)] if weight else []),
    ]
    data, measures = describe_training(config, collection, fold, facts), describe_measures(fold, facts)
    write_parts(checkpoint, [*parts, *closing(data, measures, config)])
