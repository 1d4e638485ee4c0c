"""`rerank plot`: writes a chart of the report as a file for a paper."""

from typing import Annotated

from cyclopts import Parameter

from rerank.utils.parameters import FilePath, OptionalPath
from rerank.utils.progress import print_result


def plot(
    chart: str,
    *paths: Annotated[FilePath, Parameter(required=True)],
    out: FilePath,
    measure: str = "nDCG@20",
    qrels: OptionalPath = None,
) -> None:
    """Writes a chart of the report as a file for a paper.

    Parameters
    ----------
    chart
        depth (of a collection or run files), gain (of an experiment or two run files) or learning (of an experiment).
    paths
        runs/<collection>, or the folder of one experiment in it; or run files, to be compared with the first one.
    out
        The file to write; its name ends in .pdf, .svg or .png.
    measure
        The measure of the chart, such as nDCG@20 or AP.
    qrels
        For run files: their judgments [default: the qrels.txt near the runs].
    """
    from rerank.experiments.report.plot import plot

    print_result(plot(chart, paths, out, measure, qrels))
