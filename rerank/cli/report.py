"""`rerank report`: an HTML page about the experiments of a collection."""

from rerank.cli.checks import check_measure, print_output
from rerank.utils.parameters import FilePath, OptionalOutputPath


def report(folder: FilePath, *, out: OptionalOutputPath = None, measure: str = "nDCG@20") -> None:
    """Writes an HTML page about the experiments of a collection, or about a fitted pipeline.

    Parameters
    ----------
    folder
        runs/<collection>, the folder of one experiment in it, or that of a fitted pipeline.
    out
        The file to write, - for standard output; default: report.html in the folder, or beside a pipeline.
    measure
        The measure of charts and queries, such as nDCG@20 or AP.
    """
    check_measure("--measure", measure)
    from rerank.pipelines.folder import is_pipeline

    if is_pipeline(folder):
        from rerank.pipelines.report import write_pipeline_report

        print_output(write_pipeline_report(folder, out))
        return
    from rerank.reports.html.page import write_report

    print_output(write_report(folder, out, measure))
