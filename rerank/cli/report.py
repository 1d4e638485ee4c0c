"""`rerank report`: writes an HTML page about the experiments of a collection, a pipeline, or run files."""

from typing import Annotated

from cyclopts import Parameter

from rerank.utils.parameters import FilePath, OptionalPath, PathText
from rerank.utils.progress import print_result


def report(
    *paths: Annotated[FilePath, Parameter(required=True)],
    out: OptionalPath = None,
    measure: str | None = None,
    qrels: OptionalPath = None,
    collection: PathText = "",
) -> None:
    """Writes an HTML page about the experiments of a collection, about a fitted pipeline, or about run files.

    Parameters
    ----------
    paths
        runs/<collection>, an experiment in it, a fitted pipeline, or run files, to be compared with the first.
    out
        The file to write; default: report.html in the folder, beside a pipeline, or here.
    measure
        The measure of charts and queries, such as nDCG@20 or AP [default: nDCG@20]; a pipeline has its own.
    qrels
        For run files: their judgments [default: the qrels.txt near the runs].
    collection
        For run files: an ir_datasets id or a folder with the texts of queries and documents that the page shows.
    """
    from rerank.pipelines.folder import is_pipeline

    if is_pipeline(paths[0]):
        from rerank.experiments.runs.run_files import are_run_files, expect_not_given
        from rerank.pipelines.report import write_pipeline_report

        are_run_files(paths)  # raises UserError for several folders
        expect_not_given(paths[0], {"--measure": measure, "--qrels": qrels, "--collection": collection})
        print_result(write_pipeline_report(paths[0], out))
        return
    from rerank.evaluation.weights import MEASURE
    from rerank.experiments.report.page import write_report

    print_result(write_report(paths, out, measure or MEASURE, qrels, collection))
