"""The model card of an exported folder: README.md."""

from pathlib import Path

from rerank.evaluation.agreement import TOP, Agreement
from rerank.models.export.folder import ExportFacts
from rerank.models.hub import EXPORT_FILE
from rerank.runs.manifest import DISTRIBUTION, version
from rerank.utils.json_files import read_json

CARD = "README.md"

_RUNTIMES = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}

_TEXT = """# {checkpoint} for a CPU

A re-ranker as a graph for {runtime}, in {precision}. Made with [rerank](https://github.com/ir-rerank/rerank) {version}
from `{checkpoint}`, whose card has the training data and the licence.

## Use

    rerank score {folder} RUN --collection COLLECTION --out OUT

```python
import rerank

model = rerank.Reranker.load("{folder}")
model.rank(query, documents, top_k=10)
```

Both need `pip install "ir-rerank[cpu]"`. The graph scores passages of one length, at most {max_length} tokens, without
padding; rerank splits documents into passages, up to {max_doc_tokens} tokens, and pools their scores ({pooling}).

## Agreement with the checkpoint

{agreement}
"""

_MEASURED = """Measured on {queries} queries of `{run}`, {documents} documents{calibrated}.

| | |
| --- | ---: |
| mean difference of scores | {mean:.2g} |
| largest difference of scores | {largest:.2g} |
| standard deviation of the checkpoint's scores | {spread:.2g} |
| Kendall's tau, mean over queries | {tau:.4f} |
| documents of the top {top} that are the same, mean over queries | {same:.1%} |"""

_UNMEASURED = "Not measured on texts, as there was no `--calibrate` RUN; random tokens have the same scores to 1e-3."


def write_export_card(folder: Path, checkpoint: str, agreement: Agreement | None, run: Path | None) -> None:
    """Writes the card into the folder of an exported model; no agreement if none was measured."""
    facts: ExportFacts = read_json(folder / EXPORT_FILE, ExportFacts, "export the checkpoint again")
    text = _TEXT.format(
        checkpoint=checkpoint,
        folder="path/to/this/folder",
        runtime=_RUNTIMES[facts["format"]],
        precision=facts["precision"],
        version=version(DISTRIBUTION) or "",
        max_length=facts["max_length"],
        max_doc_tokens=facts["max_doc_tokens"],
        pooling=facts["pooling"],
        agreement=_UNMEASURED if agreement is None else _measured(agreement, run, facts["precision"]),
    )
    (folder / CARD).write_text(text, encoding="utf-8")


def _measured(agreement: Agreement, run: Path | None, precision: str) -> str:
    return _MEASURED.format(
        queries=agreement.queries,
        documents=agreement.documents,
        run=run,
        calibrated="; other queries of it calibrated int8" if precision == "int8" and agreement.queries > 1 else "",
        mean=agreement.mean_difference,
        largest=agreement.largest_difference,
        spread=agreement.spread,
        tau=agreement.tau,
        top=TOP,
        same=agreement.same_top,
    )
