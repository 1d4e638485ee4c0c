"""`rerank plot`: a chart of the report as a file for a paper."""

from rerank.cli.checks import check_measure, print_output
from rerank.utils.parameters import FilePath, OutputPath


def plot(chart: str, folder: FilePath, *, out: OutputPath, measure: str = "nDCG@20") -> None:
    """Writes a chart of the report as a file for a paper.

    Parameters
    ----------
    chart
        depth or judged (of a collection); learning, gain, scores, reliability or length (of one experiment).
    folder
        runs/<collection>, or the folder of one experiment in it.
    out
        The file to write; its name ends in .pdf, .svg or .png; - for a PDF to standard output.
    measure
        The measure of the chart, such as nDCG@20 or AP.
    """
    check_measure("--measure", measure)
    from rerank.reports.charts.plot import plot

    print_output(plot(chart, folder, out, measure))
