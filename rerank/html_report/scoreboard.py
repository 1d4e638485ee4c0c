"""The table of `rerank eval` on the page."""

import re

from rerank.charts.results import Experiment, Results
from rerank.eval_command import evaluate_files
from rerank.html_report.elements import Html, escaped, join, table, tag


def scoreboard(results: Results) -> Html:
    """The table of the experiments all of whose folds are finished, and one a fold of those that are not so far.

    Runs of the first stage stand in the first rows.
    """
    whole = [experiment for experiment in results.experiments if (experiment.folder / "all.run").is_file()]
    parts = [_of_runs(results, whole, None)] if whole else []
    unfinished = [experiment for experiment in results.experiments if experiment not in whole]
    folds = dict.fromkeys(fold.name for experiment in unfinished for fold in experiment.folds if fold.run)
    if unfinished:
        names = ", ".join(experiment.name for experiment in unfinished)
        parts.append(tag("p", f"Not all folds of {names} are finished: a table for each fold.", class_="quiet"))
    for fold in folds:
        tested = [e for e in results.experiments if any(of.name == fold and of.run for of in e.folds)]
        parts += [tag("h3", f"Fold {fold}"), _of_runs(results, tested, fold)]
    return join(parts)


def _of_runs(results: Results, experiments: list[Experiment], fold: str | None) -> Html:
    first = [e.first_stage_file for e in experiments if e.first_stage]
    of_fold = f"fold{fold}/test.run" if fold else "all.run"
    paths = [*dict.fromkeys(first), *(experiment.folder / of_fold for experiment in experiments)]
    judged, folds = results.folder / "qrels.txt", results.folder / "folds.json"
    markdown = evaluate_files(paths, judged, folds if folds.is_file() else None, fold, form="markdown")
    return from_markdown(markdown)


def from_markdown(text: str) -> Html:
    """Tables, lists and paragraphs of the Markdown that `rerank eval` prints, as elements."""
    parts = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            head, _, *rows = ([_cell(cell.strip()) for cell in line.strip("|").split("|")] for line in lines)
            parts.append(table(head, rows))
        elif lines[0].startswith("- "):
            parts.append(tag("p", join((line.removeprefix("- ") for line in lines), Html("<br>")), class_="quiet"))
        else:
            parts.append(tag("p", block))
    return join(parts)


def _cell(text: str) -> Html:
    bold = re.fullmatch(r"\*\*(.*)\*\*", text)
    return tag("strong", bold[1]) if bold else escaped(text)
