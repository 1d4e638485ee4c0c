"""Reports: charts and one HTML page of the experiments in runs/<collection>.

Knows nothing of models or of training; never imports torch.
"""

from pathlib import Path


def plot(name: str, folder: Path | str, out: Path | str, measure: str = "nDCG@20") -> Path:
    """Writes one chart; see `rerank.reports.charts.plot`. matplotlib is imported when it is called."""
    from rerank.reports.charts.plot import plot

    return plot(name, folder, out, measure)


def write_report(folder: Path | str, out: Path | str | None = None, measure: str = "nDCG@20") -> Path:
    """Writes the HTML page; see `rerank.reports.html.page`. matplotlib is imported when it is called."""
    from rerank.reports.html.page import write_report

    return write_report(folder, out, measure)


__all__ = ["plot", "write_report"]
