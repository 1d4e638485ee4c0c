"""Cross-fitting: out-of-fold rankings by all stages of a pipeline.

The judged queries are cut into parts. `without` names the parts that a ranker did not learn from; it ranks the queries
of one of these. A stage that learns from learned stages learns from such rankings (stacking: Wolpert, "Stacked
generalization", 1992).
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
from rerank.utils.files import atomic_write, remove_at_once
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.parallel import failures
from rerank.utils.progress import log, progress

FEWEST = 6
"""Fewest judged queries to learn from."""

INNER_DEPTH = 200
"""Documents of a query in rankings that are used only for training and selection; it saves memory."""
FITTED = "fitted"
"""The folder of a fitted stage."""

NAME = "stage.txt"
"""The file in it with the stage's name."""

RUN = "whole.run"
"""The run in the folder of a whole ranking."""

Parts = Mapping[str, tuple[str, ...]]
"""Name of a part -> its query ids."""

Ranking = tuple[str, frozenset[str]]
"""(part, without): the queries of a part, ranked by stages that were fitted without the parts `without`."""

Fit = tuple[str, frozenset[str]]
"""(stage, without): a stage that is fitted without the parts `without`."""


@dataclass(frozen=True)
class CrossFitting:
    """The stages of a pipeline on a collection (`world`).

    `queries` are the texts of the queries of all parts, by id. `folder` keeps fitted stages, so that a fit resumes.
    """

    stages: Mapping[str, Stage]
    world: World
    parts: Parts
    queries: Mapping[str, str]
    folder: Path
    _rankers: dict[Fit, Ranker] = field(default_factory=dict, repr=False)
    _runs: dict[tuple[str, str, frozenset[str]], Run] = field(default_factory=dict, repr=False)

    def run(self, name: str, part: str, without: frozenset[str] = frozenset()) -> Run:
        """The ranking of a part's queries by a stage that is fitted without the parts `without`."""
        learned = self.learns(name)
        key = name, part, without if learned else frozenset()
        if key not in self._runs:
            queries = {query_id: self.queries[query_id] for query_id in self.parts[part]}
            if learned:
                runs = [
                    self.run(lower, part, self._held_out(lower, part, without)) for lower in below(self.stages[name])
                ]
                run = self.ranker(name, without).rank(queries, runs)
                self._runs[key] = first_documents(run, INNER_DEPTH) if len(without) > 1 else run
            else:
                whole = self._whole_run(name)
                for each, query_ids in self.parts.items():
                    self._runs[name, each, frozenset()] = {q: whole[q] for q in query_ids if q in whole}
        return self._runs[key]

    def _held_out(self, lower: str, part: str, without: frozenset[str]) -> frozenset[str]:
        """The parts that taught neither the stage `lower` nor its ranking of `part`, for a stage above it.

        A stage that is fitted once a part also ranks its validation queries. These have taught the stages below that
        are fitted without the same parts, which would rank them too well. So the ranking is by a fit without `part`.
        """
        has_others = len(self.parts.keys() - without) > 1
        return without | {part} if has_others and len(without) == 1 and not self.is_expensive(lower) else without

    def runs(self, name: str, rankings: Iterable[Ranking]) -> Run:
        """Several rankings by a stage, joined in one run."""
        return {q: scores for part, without in rankings for q, scores in self.run(name, part, without).items()}

    def ranker(self, name: str, without: frozenset[str] = frozenset()) -> Ranker:
        """The ranker of a stage without these parts, opened from the folder or fitted."""
        key = self._key(name, without)
        if key not in self._rankers:
            place, settings = self.place(*key), self.stages[name]
            kept = place / FITTED
            self._rankers[key] = settings.open(self.world, kept) if _is_whole(kept) else self._fit(*key, place)
        return self._rankers[key]

    def place(self, name: str, without: frozenset[str]) -> Path:
        """The folder of a stage that is fitted without the parts `without`."""
        return self.folder / name / ("-".join(["without", *sorted(without)]) if without else "all")

    def fits(self, tested: Iterable[str]) -> list[Fit]:
        """The fits of all stages without each tested part and, for stacking, without pairs of parts.

        Expensive stages (cross-encoders, trained encoders) are fitted once a part.
        """
        fits: dict[Fit, None] = {}
        for name in self.stages:
            for part in tested:
                for other in [part] if self.is_expensive(name) else self.parts:
                    fits[self._key(name, frozenset({part, other}))] = None
        return list(fits)

    def fit_all(self, fits: Sequence[Fit], engine: str = LOCAL) -> None:
        """Fits the stages. A Ray cluster that `engine` names fits those that learn expensively.

        The progress is that of each stage by itself, as the fits of different stages take different times.
        """
        for place, (name, settings) in enumerate(self.stages.items(), 1):
            of_stage = [fit for fit in fits if fit[0] == name]
            if engine != LOCAL and settings.learns == "expensively":
                self._fit_on_cluster(of_stage, engine)  # all at once, after those of the stages below
            for _, without in progress(of_stage, len(of_stage), f"fitting {name} ({place} of {len(self.stages)})"):
                self.ranker(name, without)

    def _fit_on_cluster(self, fits: Sequence[Fit], engine: str) -> None:
        missing = self.missing(fits)
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

    def missing(self, fits: Iterable[Fit]) -> list[Fit]:
        """The fits that the folder does not have yet."""
        return [fit for fit in fits if not _is_whole(self.place(*fit) / FITTED)]

    def _key(self, name: str, without: frozenset[str]) -> Fit:
        return name, without if self.learns(name) else frozenset()

    def learns(self, name: str) -> bool:
        """Whether the ranking of a stage depends on judgments: it learns, or a stage below it does."""
        settings = self.stages[name]
        return settings.learns != "nothing" or any(map(self.learns, below(settings)))

    def is_expensive(self, name: str) -> bool:
        """Whether a stage, or one below it, is fitted only once a part; it then ranks only validation queries."""
        settings = self.stages[name]
        return settings.learns == "expensively" or any(map(self.is_expensive, below(settings)))

    def valid_part(self, without: frozenset[str]) -> str:
        """The part that validates: the nearest earlier part (cyclic) that is not held out."""
        names = list(self.parts)
        first = next((place for place, name in enumerate(names) if name in without), 0)
        before = (names[(first - step) % len(names)] for step in range(1, len(names) + 1))
        return next(name for name in before if name not in without)

    def taught(self, name: str, part: str) -> int:
        """The number of queries that a stage learns from when it is fitted without a part."""
        fold, _ = self.lessons(name, frozenset({part}))
        return len(fold.train) + (0 if getattr(self.stages[name], "ignores_validation", False) else len(fold.valid))

    def lessons(self, name: str, without: frozenset[str]) -> tuple[Fold, list[Ranking]]:
        """The training data of a stage that is fitted without some parts: a fold, and rankings by the stages below.

        A stage that learns nothing has no rankings.
        """
        parts = [part for part in self.parts if part not in without]
        if self.stages[name].learns == "nothing" or not parts:  # there are no judgments
            return Fold(FINAL, (), (), ()), []
        valid = self.valid_part(without)
        name_of_fold = "-".join(sorted(without)) or FINAL  # the name of the same fold in `rerank train`
        if any(map(self.is_expensive, below(self.stages[name]))):
            # The stages below rank only validation queries, so training queries have no ranking to learn from.
            return Fold(name_of_fold, (), self.parts[valid], ()), [(valid, without)]
        train = tuple(q for part in parts if part != valid for q in self.parts[part])
        # With only two parts none can be held out again, so the stages below have learned from these queries.
        rankings = [(part, without | {part} if len(parts) > 2 else without) for part in parts]
        return Fold(name_of_fold, train, self.parts[valid], ()), rankings

    def _fit(self, name: str, without: frozenset[str], place: Path) -> Ranker:
        settings = self.stages[name]
        fold, rankings = self.lessons(name, without)
        runs = [self.runs(lower, rankings) for lower in below(settings)]
        if settings.learns == "expensively":
            log.info(f"fitting {name}" + (f" without part {', '.join(sorted(without))}" if without else ""))
        ranker = settings.fit(self.world, fold, runs, place)
        with atomic_write(place / FITTED) as tmp:
            tmp.mkdir()
            (tmp / NAME).write_text(name, encoding="utf-8")  # a record has a file, and some stages save none
            ranker.save(tmp)
            write_record(tmp)
        return ranker

    def _whole_run(self, name: str) -> Run:
        """The ranking of all queries by a stage that learns nothing, read from the folder or made and written."""
        kept = self.folder / f"{name}.run"
        if not _is_whole(kept):
            rankings: list[Ranking] = [(part, frozenset()) for part in self.parts]
            runs = [self.runs(lower, rankings) for lower in below(self.stages[name])]
            run = self.ranker(name).rank(self.queries, runs)
            if not any(run.values()):
                return {}
            with atomic_write(kept) as tmp:
                tmp.mkdir()
                write_run(run, tmp / RUN, name)
                write_record(tmp)
        return read_run(kept / RUN)


def _is_whole(kept: Path) -> bool:
    """Whether an interrupted fit has left a folder with all its files unchanged; removes any other folder."""
    if not kept.exists():
        return False
    if changed := changes_since_record(kept):
        log.info(f"{kept}: has changed since it was written ({changed[0]}): it is made again")
        remove_at_once(kept)
        return False
    return True


def _fit_in_process(
    config: Config, stages: Mapping[str, Stage], parts: Parts, queries: Mapping[str, str], folder: Path, fit: Fit
) -> None:
    """Fits a stage in another process, which opens the collection itself."""
    CrossFitting(stages, World.open(config).knowing(queries), parts, queries, folder).ranker(*fit)
