"""A folder of runs -> what its experiments left there, read once for all charts and for the report."""

import functools
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerank.config import FirstStageSettings
from rerank.data.trec import ranked, read_qrels, read_run
from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import measure_names
from rerank.runs.layout import bm25_name
from rerank.types import Qrels, Run


@dataclass(frozen=True)
class FoldResult:
    """What one fold left: `history` has a record an epoch, `facts` are the manifest's.

    `passages` maps query_id -> doc_id -> (number of the passage that scored highest, from 0, passages) of the documents
    that have several. `facts`, `run` and `passages` are empty while the fold is not finished.
    """

    name: str
    history: list[dict[str, Any]]
    facts: dict[str, Any]
    run: Run
    passages: dict[str, dict[str, tuple[int, int]]]


@dataclass(frozen=True)
class Experiment:
    """What one experiment left; `first_stage` holds the candidates of the topics that finished folds tested.

    `first_stage` is empty where `first_stage_file` is no longer there: it stands in no chart then.
    """

    folder: Path
    settings: dict[str, Any]
    folds: list[FoldResult]
    first_stage_file: Path
    depth: int
    first_stage: Run

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.absolute().name

    @functools.cached_property
    def run(self) -> Run:
        """The test runs of all finished folds."""
        return {query_id: scores for fold in self.folds for query_id, scores in fold.run.items()}

    @property
    def of_features(self) -> bool:
        """Whether it was trained on feature vectors, which have neither texts nor a first stage."""
        return any("features" in fold.facts for fold in self.folds)

    def candidates(self) -> Run:
        """The first stage's candidates; raises UserError where its run is not there."""
        if self.of_features:
            raise UserError(f"{self.name}: feature vectors have no first stage to compare with")
        if not self.first_stage:
            raise UserError(f"{self.name}: the first stage's run {self.first_stage_file} is not there to compare with")
        return self.first_stage


@dataclass(frozen=True)
class Results:
    """`folder` is runs/<collection>; `measure` is the name of the one that charts show.

    `queries` are the topics' texts, where they are known.
    """

    folder: Path
    measure: str
    qrels: Qrels
    experiments: list[Experiment]
    queries: dict[str, str] = field(default_factory=dict)

    def first_stage_name(self, experiment: Experiment) -> str:
        """What the candidates of an experiment are called: as short as tells different ones apart."""
        keys = list(dict.fromkeys((e.first_stage_file, e.depth) for e in self.experiments))
        forms = [file.stem for file, _ in keys], [f"{file.stem}, first {depth}" for file, depth in keys]
        telling = [form for form in forms if len(set(form)) == len(keys)]
        names = telling[0] if telling else [f"{file}, first {depth}" for file, depth in keys]
        return names[keys.index((experiment.first_stage_file, experiment.depth))]

    def judged(self, query_ids: Any) -> Qrels:
        """The judgments of those queries that have any."""
        return {query_id: self.qrels[query_id] for query_id in query_ids if query_id in self.qrels}

    def values(self, experiment: Experiment) -> tuple[dict[str, float], dict[str, float]]:
        """query_id -> the measure before re-ranking, and after, of the topics that the experiment has tested."""
        qrels = self.judged(experiment.run)
        before, after = (evaluate(qrels, run, [self.measure]) for run in (experiment.candidates(), experiment.run))
        return before[self.measure], after[self.measure]


def read_results(folder: Path, measure: str) -> Results:
    """Reads runs/<collection>, or one experiment's folder in it.

    Raises UserError where it is neither, no fold of it is finished, or a file is damaged.
    """
    (name,) = measure_names([measure])
    one = (folder / "config.toml").is_file() and (folder.absolute().parent / "qrels.txt").is_file()
    collection = folder.absolute().parent if one else folder
    if not (collection / "qrels.txt").is_file():
        inside = sorted(str(path.parent) for path in folder.glob("*/qrels.txt"))
        hint = (
            f"; expected {' or '.join(inside)}"
            if inside
            else "; expected runs/<collection>, as `rerank train` fills it"
        )
        raise UserError(f"{folder}: not a folder of runs: it has no qrels.txt{hint}")
    folders = [folder] if one else sorted(path.parent for path in collection.glob("*/config.toml"))
    runs: dict[Path, Run] = {}
    experiments = [_read_experiment(path, collection, runs) for path in folders]
    finished = [experiment for experiment in experiments if experiment.run]
    if not finished:
        raise UserError(f"{folder}: no experiment here has a finished fold (fold1/test.run); `rerank train` makes one")
    qrels = {query_id: judged for query_id, judged in read_qrels(collection / "qrels.txt").items() if judged}
    return Results(collection, name, qrels, finished)


def only_experiment(results: Results, chart: str) -> Experiment:
    """The one experiment of the results; raises UserError where there are several."""
    if len(results.experiments) > 1:
        names = " or ".join(str(experiment.folder) for experiment in results.experiments)
        raise UserError(f"{chart}: shows one experiment, and {results.folder} has several; expected {names}")
    return results.experiments[0]


def _read_experiment(folder: Path, collection: Path, runs: dict[Path, Run]) -> Experiment:
    """`runs` keeps the runs of the first stage, which experiments share."""
    try:
        settings = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{folder / 'config.toml'}: not TOML: {error}; the experiment's settings are lost") from error
    folds = [_read_fold(path) for path in sorted(folder.glob("fold*"), key=_fold_order) if path.is_dir()]
    table = FirstStageSettings(**settings.get("first_stage", {}))
    file = Path(table.run) if table.run else collection / f"{bm25_name(table)}.run"
    tested = {query_id for fold in folds for query_id in fold.run}
    if tested and file not in runs:
        runs[file] = read_run(file) if file.is_file() else {}
    candidates = {
        query_id: {doc_id: scores[doc_id] for doc_id in ranked(scores)[: table.depth]}
        for query_id, scores in runs.get(file, {}).items()
        if query_id in tested
    }
    return Experiment(folder, settings, folds, file, table.depth, candidates)


def _fold_order(path: Path) -> tuple[int, str]:
    number = path.name.removeprefix("fold")
    return (int(number) if number.isdecimal() else 0, number)


def _read_fold(folder: Path) -> FoldResult:
    log, test = folder / "log.jsonl", folder / "test.run"
    history = []
    for number, line in enumerate(log.read_text(encoding="utf-8").splitlines() if log.is_file() else [], 1):
        try:
            history.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{log}:{number}: expected a record in JSON, got {line[:80]!r}") from error
    return FoldResult(
        folder.name.removeprefix("fold"),
        history,
        _read_json(folder / "manifest.json"),
        read_run(test) if test.is_file() else {},
        _read_json(folder / "test.passages.json"),
    )


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: expected JSON ({error}); remove the file") from error
    return found
