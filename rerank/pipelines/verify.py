"""`rerank verify` of a pipeline's folder: its hashes, and the means of its evidence."""

from pathlib import Path
from statistics import fmean

from rerank.data.trec import read_run
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.tables.table import aligned
from rerank.pipelines.folder import RUNS, load_fitted, read_evidence


def verify_pipeline(folder: Path) -> tuple[str, bool]:
    """A table with a line for each stage, and whether its run still has the mean of the evidence.

    Raises UserError if a file, the documents or an encoder has changed.
    """
    fitted, record = load_fitted(folder), read_evidence(folder)
    qrels, measure = fitted.world.collection.qrels, record["measure"]
    rows, holds = [["stage", measure, ""]], True
    for row in record["stages"]:
        file = folder / RUNS / f"{row['name']}.run"
        if row["mean"] is None or not file.is_file():
            rows.append([row["name"], "", "not measured"])
            continue
        values = values_of(read_run(file), qrels, list(record["values"][row["name"]]), measure)
        same = bool(values) and abs(fmean(values.values()) - row["mean"]) < 1e-9
        holds &= same
        mean = f"{fmean(values.values()):.4f}" if values else "no judgments"
        rows.append([row["name"], mean, "holds" if same else f"the evidence has {row['mean']:.4f}"])
    end = "Everything that is recorded holds." if holds else "The evidence does not hold."
    return f"{aligned(rows)}\n\n{end}\n", holds
