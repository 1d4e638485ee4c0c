"""`rerank report`: an HTML page about the experiments of a collection."""

from rerank.cli.checks import check_measure
from rerank.utils.parameters import FilePath, OptionalPath


def report(folder: FilePath, *, out: OptionalPath = None, measure: str = "nDCG@20") -> None:
    """Writes an HTML page about the experiments of a collection.

    Parameters
    ----------
    folder
        runs/<collection>, or the folder of one experiment in it.
    out
        The file to write; default: report.html in the folder.
    measure
        The measure of charts and queries, such as nDCG@20 or AP.
    """
    check_measure("--measure", measure)
    from rerank.reports.html.page import write_report

    print(write_report(folder, out, measure))
