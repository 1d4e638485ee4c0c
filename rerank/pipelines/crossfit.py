"""Cross-fitting: rankings of queries by stages that did not learn from these queries, whatever is above them.

The judged queries are cut into parts. `without` names the parts that a ranker did not learn from. A ranker that was
fitted without some parts ranks one of these; a stage that learns from learned stages learns from such rankings
(stacking: Wolpert, "Stacked generalization", 1992). So every ranking is one of queries that taught it nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rerank.config import Config
from rerank.data.runs import read_run
from rerank.data.trec import first_documents, write_run
from rerank.data.types import FINAL, Fold, Run
from rerank.pipelines.stages.base import Ranker, Stage, below
from rerank.pipelines.stages.world import World
from rerank.utils.cluster import LOCAL, work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from rerank.utils.parallel import failures
from rerank.utils.progress import log, progress

FEWEST = 6
"""The fewest judged queries that anything is learned from."""
INNER_DEPTH = 200
"""Documents of a query in the rankings that only teach the stages above and choose; there are many of these."""
Parts = Mapping[str, tuple[str, ...]]
"""Name of a part -> its query ids."""
Ranking = tuple[str, frozenset[str]]
"""The queries of a part, ranked by stages that were fitted without some parts."""
Fit = tuple[str, frozenset[str]]
"""A stage that is fitted without some parts."""


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
    _rankers: dict[Fit, Ranker] = field(default_factory=dict, repr=False)
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

    def runs(self, name: str, rankings: Iterable[Ranking]) -> Run:
        """Several rankings by a stage in one run."""
        return {q: scores for part, without in rankings for q, scores in self.run(name, part, without).items()}

    def ranker(self, name: str, without: frozenset[str] = frozenset()) -> Ranker:
        """A stage that was fitted without these parts; it is fitted unless the folder has it."""
        key = self._key(name, without)
        if key not in self._rankers:
            place, settings = self.place(*key), self.stages[name]
            kept = place / "fitted"
            self._rankers[key] = settings.open(self.world, kept) if kept.exists() else self._fit(*key, place)
        return self._rankers[key]

    def place(self, name: str, without: frozenset[str]) -> Path:
        """The folder of a stage that is fitted without these parts."""
        return self.folder / name / ("-".join(["without", *sorted(without)]) if without else "all")

    def fit_all(self, tested: Iterable[str], engine: str = LOCAL) -> None:
        """Fits the stages that `run` needs for these parts, without them and without two parts; shows the progress.

        Stages that are fitted once a part, as cross-encoders are, are fitted on the Ray cluster `engine`, if it is one.
        """
        fits: dict[Fit, None] = {}
        for name in self.stages:
            for part in tested:
                for other in [part] if self.is_expensive(name) else self.parts:
                    fits[self._key(name, frozenset({part, other}))] = None
        on_cluster = [name for name in self.stages if engine != LOCAL and self.stages[name].learns == "expensively"]
        for name, without in progress(fits, len(fits), "fitting stages"):
            if name in on_cluster:
                on_cluster.remove(name)  # all of its fits at once, after those of the stages below
                self._fit_on_cluster([fit for fit in fits if fit[0] == name], engine)
            self.ranker(name, without)

    def _fit_on_cluster(self, fits: Sequence[Fit], engine: str) -> None:
        missing = [fit for fit in fits if not (self.place(*fit) / "fitted").exists()]
        if not missing:
            return
        config = self.world.config
        fit_one = partial(_fit_in_process, config, self.stages, self.parts, self.queries, self.folder)
        ended = work_on_ray(engine, fit_one, missing, gpus=config.training.device != "cpu")
        failed = failures(ended, len(missing), "fitting on the cluster", lambda fit: self.place(*fit).name)
        if failed:
            (name, without), error = failed[0]
            raise UserError(
                f"{len(failed)} of {len(missing)} fits of {name} failed: {self.place(name, without).name}: {error}"
            )

    def _key(self, name: str, without: frozenset[str]) -> Fit:
        return name, without if self.learns(name) else frozenset()

    def learns(self, name: str) -> bool:
        """Whether the ranking of a stage depends on judgments: it learns, or a stage below it does."""
        settings = self.stages[name]
        return settings.learns != "nothing" or any(map(self.learns, below(settings)))

    def is_expensive(self, name: str) -> bool:
        """Whether a stage, or one below it, is fitted once a fold, so that it ranks validation queries alone."""
        settings = self.stages[name]
        return settings.learns == "expensively" or any(map(self.is_expensive, below(settings)))

    def valid_part(self, without: frozenset[str]) -> str:
        """The part that validates: the one before the first missing part that is not missing itself."""
        names = list(self.parts)
        first = next((place for place, name in enumerate(names) if name in without), 0)
        before = (names[(first - step) % len(names)] for step in range(1, len(names) + 1))
        return next(name for name in before if name not in without)

    def taught(self, name: str, part: str) -> int:
        """The number of queries that teach a stage which is fitted without a part."""
        fold, _ = self._lessons(name, frozenset({part}))
        return len(fold.train) + len(fold.valid)

    def _lessons(self, name: str, without: frozenset[str]) -> tuple[Fold, list[Ranking]]:
        """What a stage that is fitted without some parts learns from: its fold, and rankings by the stages below.

        A stage that learns nothing has no ranking.
        """
        parts = [part for part in self.parts if part not in without]
        if self.stages[name].learns == "nothing" or not parts:  # there are no judgments
            return Fold(FINAL, (), (), ()), []
        valid = self.valid_part(without)
        name_of_fold = "-".join(sorted(without)) or FINAL  # as `rerank train` names the fold that this part tests
        if any(map(self.is_expensive, below(self.stages[name]))):
            # What is below ranks validation queries alone, so these alone can teach.
            return Fold(name_of_fold, (), self.parts[valid], ()), [(valid, without)]
        train = tuple(q for part in parts if part != valid for q in self.parts[part])
        # Two parts are the fewest that train and validate: the stages below have then seen these queries.
        rankings = [(part, without | {part} if len(parts) > 2 else without) for part in parts]
        return Fold(name_of_fold, train, self.parts[valid], ()), rankings

    def _fit(self, name: str, without: frozenset[str], place: Path) -> Ranker:
        settings = self.stages[name]
        fold, rankings = self._lessons(name, without)
        runs = [self.runs(one, rankings) for one in below(settings)]
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
            rankings: list[Ranking] = [(part, frozenset()) for part in self.parts]
            under = [self.runs(one, rankings) for one in below(self.stages[name])]
            run = self.ranker(name).rank(self.queries, under)
            if not any(run.values()):
                return {}
            write_run(file, run, name)
        return read_run(file)


def _fit_in_process(
    config: Config, stages: Mapping[str, Stage], parts: Parts, queries: Mapping[str, str], folder: Path, fit: Fit
) -> None:
    """Fits a stage in another process, which opens the world."""
    CrossFitting(stages, World.open(config).knowing(queries), parts, queries, folder).ranker(*fit)
