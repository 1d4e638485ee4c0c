"""`rerank verify`: compares what pipelines, and the experiments beside them, record with their present files."""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from rerank.data.runs import read_run
from rerank.data.types import Judgments
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.tables import render
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.runs.verify import verify
from rerank.pipelines.evidence_table import as_table
from rerank.pipelines.folder import RUNS, is_pipeline, load_fitted
from rerank.pipelines.inputs import compare_inputs
from rerank.pipelines.record import EvidenceRecord, read_evidence
from rerank.utils.errors import UserError


def verify_folder(folder: Path) -> tuple[str, bool]:
    """Checks a pipeline, or the experiments of `rerank.experiments.runs.verify` and the pipelines in their folder.

    Returns what holds and what does not, as text, and whether all of it holds. Raises UserError if there is nothing.
    """
    if is_pipeline(folder):
        return verify_pipeline(folder)
    pipelines = [place for place in sorted(folder.glob("*/")) if is_pipeline(place)]
    has_experiments = not pipelines or any(one.models for one in CollectionFolder(folder).experiments)
    checks = [verify(folder)] if has_experiments else []
    for place in pipelines:
        try:
            text, holds = verify_pipeline(place)
        except UserError as error:
            text, holds = f"{error}\n", False
        checks.append((f"{place}\n{text}", holds))
    return "\n".join(text for text, _ in checks), all(holds for _, holds in checks)


def verify_pipeline(folder: Path) -> tuple[str, bool]:
    """The evidence of a folder as text, and whether its inputs and the means of its stages are still the recorded ones.

    What is not on this machine is named, and is no difference. Raises UserError if a file, the documents or an encoder
    has changed.
    """
    fitted, record, table, differences = load_fitted(folder), read_evidence(folder), "", list[str]()
    if record:
        table = render(as_table(record))
        differences += _changed_means(folder, record, fitted.world.collection.qrels)
    changed, missing = compare_inputs(fitted)
    end = [*differences, *changed, *missing]
    if not (differences or changed):
        rest = f"All else that is recorded holds; {len(missing)} of its inputs could not be compared."
        end.append(rest if missing else "Everything that is recorded holds.")
    return f"{table}\n" + "".join(f"{line}\n" for line in end), not (differences or changed)


def _changed_means(folder: Path, record: EvidenceRecord, qrels: Judgments) -> Iterator[str]:
    """A line for each stage whose run has another mean than the evidence."""
    for row in record["stages"]:
        name, file = row["name"], folder / RUNS / f"{row['name']}.run"
        if row["mean"] is not None and file.is_file():
            values = values_of(read_run(file), qrels, list(record["values"].get(name, ())), record["measure"])
            mean = fmean(values.values()) if values else math.nan
            if not abs(mean - row["mean"]) < 1e-9:
                yield f"{name}: its run has {mean:.4f}, the evidence has {row['mean']:.4f}"
