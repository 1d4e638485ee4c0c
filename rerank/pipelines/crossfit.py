"""Cross-fitting: rankings of queries by stages that did not learn from these queries, whatever is above them.

The judged queries are cut into parts. `without` names the parts that a ranker did not learn from. A ranker that was
fitted without some parts ranks one of these; a stage that learns from learned stages learns from such rankings
(stacking: Wolpert, "Stacked generalization", 1992). So every ranking is one of queries that taught it nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rerank.data.folds import FINAL
from rerank.data.trec import first_documents, read_run, write_run
from rerank.data.types import Fold, Run
from rerank.stages.base import Ranker, Stage, below
from rerank.stages.world import World
from rerank.utils.files import atomic_write
from rerank.utils.progress import log, progress

INNER_DEPTH = 200
"""Documents of a query in the rankings that only teach the stages above and choose; there are many of these."""
Parts = Mapping[str, tuple[str, ...]]
"""Name of a part -> its query ids."""


@dataclass(frozen=True)
class CrossFitting:
    """The stages of a pipeline on a world, and the folder that keeps what was fitted, from which a fit resumes.

    `queries` are all queries of the parts, query_id to text.
    """

    stages: Mapping[str, Stage]
    world: World
    parts: Parts
    queries: Mapping[str, str]
    folder: Path
    _rankers: dict[tuple[str, frozenset[str]], Ranker] = field(default_factory=dict, repr=False)
    _runs: dict[tuple[str, str, frozenset[str]], Run] = field(default_factory=dict, repr=False)

    def run(self, name: str, part: str, without: frozenset[str] = frozenset()) -> Run:
        """The ranking of a part's queries by a stage that was fitted without the parts `without`."""
        learned = self.learns(name)
        key = name, part, without if learned else frozenset()
        if key not in self._runs:
            queries = {query_id: self.queries[query_id] for query_id in self.parts[part]}
            if learned:
                runs = [self.run(one, part, without) for one in below(self.stages[name])]
                run = self.ranker(name, without).rank(queries, runs)
                self._runs[key] = first_documents(run, INNER_DEPTH) if len(without) > 1 else run
            else:
                whole = self._whole_run(name)
                for one, query_ids in self.parts.items():
                    self._runs[name, one, frozenset()] = {q: whole[q] for q in query_ids if q in whole}
        return self._runs[key]

    def runs_of(self, name: str, parts: Iterable[str], without: frozenset[str]) -> Run:
        """The rankings of the queries of some parts, each by a stage fitted without that part and `without`."""
        return {q: scores for part in parts for q, scores in self.run(name, part, without | {part}).items()}

    def ranker(self, name: str, without: frozenset[str] = frozenset()) -> Ranker:
        """A stage that was fitted without these parts; it is fitted unless the folder has it."""
        settings = self.stages[name]
        key = name, without if self.learns(name) else frozenset()
        if key not in self._rankers:
            place = self.folder / name / ("-".join(["without", *sorted(key[1])]) if key[1] else "all")
            if (place / "fitted").exists():
                self._rankers[key] = settings.open(self.world, place / "fitted")
            else:
                self._rankers[key] = self._fit(name, key[1], place)
        return self._rankers[key]

    def fit_all(self, tested: Iterable[str]) -> None:
        """Fits the stages that `run` needs for these parts, without them and without two parts; shows the progress."""
        plan: dict[tuple[str, frozenset[str]], None] = {}
        for part in tested:
            for name in self.stages:
                self._plan(name, frozenset({part}), plan)
                for other in () if self.is_expensive(name) else self.parts:
                    self._plan(name, frozenset({part, other}), plan)
        for name, without in progress(plan, len(plan), "fitting stages"):
            self.ranker(name, without)

    def _plan(self, name: str, without: frozenset[str], plan: dict[tuple[str, frozenset[str]], None]) -> None:
        """Adds a fit to the plan, after those that it needs."""
        settings, key = self.stages[name], (name, without if self.learns(name) else frozenset())
        if key in plan:
            return
        names = below(settings)
        crossed = settings.learns != "nothing" and not any(map(self.is_expensive, names))
        parts = [part for part in self.parts if part not in key[1]]
        for one in names:
            for part in parts if crossed and len(parts) > 2 else ():
                self._plan(one, key[1] | {part}, plan)
            self._plan(one, key[1], plan)
        plan[key] = None

    def learns(self, name: str) -> bool:
        """Whether the ranking of a stage depends on judgments: it learns, or a stage below it does."""
        settings = self.stages[name]
        return settings.learns != "nothing" or any(map(self.learns, below(settings)))

    def is_expensive(self, name: str) -> bool:
        """Whether a stage, or one below it, is fitted once a fold, so that it ranks validation queries alone."""
        settings = self.stages[name]
        return settings.learns == "expensively" or any(map(self.is_expensive, below(settings)))

    def fold(self, without: frozenset[str]) -> Fold:
        """The queries of the other parts: those of the part before the first missing one validate."""
        names = list(self.parts)
        if not names:  # no judgments
            return Fold(FINAL, (), (), ())
        first = next((place for place, name in enumerate(names) if name in without), 0)
        before = [names[(first - step) % len(names)] for step in range(1, len(names) + 1)]
        valid = next(name for name in before if name not in without)
        train = [q for name in names if name != valid and name not in without for q in self.parts[name]]
        return Fold(FINAL, tuple(train), self.parts[valid], ())

    def _fit(self, name: str, without: frozenset[str], place: Path) -> Ranker:
        settings, fold, runs = self.stages[name], self.fold(without), list[Run]()
        if settings.learns != "nothing":
            names = below(settings)
            parts = [part for part in self.parts if part not in without]
            if any(map(self.is_expensive, names)):  # it ranks validation queries alone, so these alone can teach
                fold = Fold(FINAL, (), fold.valid, ())
                parts = [part for part in parts if self.parts[part] == fold.valid]
                runs = [self.run(one, parts[0], without) for one in names]
            elif len(parts) > 2:
                runs = [self.runs_of(one, parts, without) for one in names]
            else:  # the fewest that train and validate: the stages below have seen these queries
                runs = [{q: s for part in parts for q, s in self.run(one, part, without).items()} for one in names]
        if settings.learns == "expensively":
            log.info(f"fitting {name}" + (f" without part {', '.join(sorted(without))}" if without else ""))
        ranker = settings.fit(self.world, fold, runs, place)
        with atomic_write(place / "fitted") as tmp:
            tmp.mkdir()
            ranker.save(tmp)
        return ranker

    def _whole_run(self, name: str) -> Run:
        """The ranking of all queries by a stage that learns nothing; it is in the folder, or is made and written."""
        file = self.folder / f"{name}.run"
        if not file.exists():
            run = self.ranker(name).rank(self.queries, [self._all_parts(one) for one in below(self.stages[name])])
            if not any(run.values()):
                return {}
            with atomic_write(file) as tmp:
                write_run(tmp, run, name)
        return read_run(file)

    def _all_parts(self, name: str) -> Run:
        return {q: scores for part in self.parts for q, scores in self.run(name, part).items()}
