"""`rerank mine`: training lists with hard negatives, documents that rank high and are not relevant."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.data.runs import read_run
from rerank.data.trec import ranked
from rerank.data.types import Run
from rerank.experiments.collection import folder_of
from rerank.experiments.distill import scored_once, scoring_inputs
from rerank.experiments.first_stage import first_stage_run, open_checked, with_texts
from rerank.experiments.runs.run_files import is_run
from rerank.experiments.score import model_hashes
from rerank.training.device import exclusive, open_accelerator
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash, write_text
from rerank.utils.progress import log, progress

SAME = 0.8
"""The share of common words from which two texts are near-duplicates."""


@dataclass(frozen=True)
class Mining:
    """Which documents become negatives.

    first, last: their ranks, from 1.
    negatives: how many a list has, at most.
    margin: how far a negative's score is below the positive's, at least; None: the scores do not matter.
    relative_margin: the same, as a share of the positive's score.
    sampling: "top" for the best ranked ones, or "random".
    """

    first: int = 1
    last: int = 100
    negatives: int = 7
    margin: float | None = None
    relative_margin: float | None = None
    sampling: str = "top"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise UserError(f"--ranks {self.first} {self.last}: expected two ranks from 1, the lower one first")
        if self.relative_margin is not None and not 0 <= self.relative_margin <= 1:
            raise UserError(f"--relative-margin {self.relative_margin:g}: expected a share from 0 to 1")


def mine_lists(config: Config, by: str | Run, mining: Mining, out: Path) -> Path:
    """Writes a list for each query and each of its relevant documents: this document and hard negatives.

    `by` ranks the documents: a run, the file of one, or a cross-encoder, which re-ranks the first stage's candidates. A
    negative is neither judged relevant for the query nor a near-duplicate of a document that is. A relevant document
    without a negative has no list; with a margin this is so for a document that the run does not rank. The log counts
    them. Raises UserError for a collection without judgments or texts, and if no list can be made.
    """
    collection = open_checked(config, judged=True)
    texts = with_texts(config, collection, folder_of(config, collection))
    run = _run_of(config, texts, by) if isinstance(by, str) else by
    lists, alone, twins = [], 0, 0
    judged = {q: grades for q, grades in collection.qrels.items() if any(grade > 0 for grade in grades.values())}
    for query_id, grades in progress(judged.items(), len(judged), "mining"):
        scores = run.get(query_id, {})
        negatives, left_out = negatives_of(texts, grades, scores, mining)
        twins += left_out
        for doc_id, grade in grades.items():
            if grade <= 0:
                continue
            chosen = _choose(negatives, scores, doc_id, mining, f"{mining.seed} {query_id} {doc_id}")
            alone += not chosen
            if chosen:
                labels = [grade, *[0] * len(chosen)]
                lists.append({"query_id": query_id, "doc_ids": [doc_id, *chosen], "labels": labels})
    if not lists:
        raise UserError(f"{out}: no relevant document has a negative; take more ranks, or no margin")
    write_text(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lists))
    queries = len({line["query_id"] for line in lists})
    log.info(
        f"{out}: {len(lists)} lists of {queries} queries; {alone} relevant documents have no negative; {twins} "
        "near-duplicates of relevant documents are left out"
    )
    return out


def _run_of(config: Config, collection: Collection, by: str) -> Run:
    """The run of a file, or of a cross-encoder that re-ranks the candidates, which is kept as that of a teacher."""
    if is_run(by):
        return read_run(by)
    folder = folder_of(config, collection)
    first = first_stage_run(config, collection, folder)
    accelerator = open_accelerator(config.training)
    scored, _ = folder.teacher(short_hash(*model_hashes(by), scoring_inputs(config, first, collection, accelerator)))
    with exclusive(accelerator, folder.path, "teacher scores"):
        return read_run(scored_once(config, by, first, scored))


def negatives_of(
    texts: Collection, grades: Mapping[str, int], scores: Mapping[str, float], mining: Mining
) -> tuple[list[str], int]:
    """The documents of a query's ranking that may be negatives, best first, and the number of near-duplicates.

    `grades` are the judgments of the query, and `scores` its ranking. A document that is judged relevant is no
    negative, nor is a near-duplicate of one.
    """
    relevant = {doc_id: grade for doc_id, grade in grades.items() if grade > 0}
    others = [doc_id for doc_id in ranked(scores)[mining.first - 1 : mining.last] if doc_id not in relevant]
    negatives = _without_twins(texts, relevant, others)
    return negatives, len(others) - len(negatives)


def _choose(
    negatives: Sequence[str], scores: Mapping[str, float], positive: str, mining: Mining, seed: str
) -> list[str]:
    """The negatives of a relevant document, best first."""
    allowed, own = list(negatives), scores.get(positive)
    if mining.margin is not None:
        allowed = [doc_id for doc_id in allowed if own is not None and scores[doc_id] <= own - mining.margin]
    if (share := mining.relative_margin) is not None:
        allowed = [doc_id for doc_id in allowed if own is not None and scores[doc_id] <= own - abs(own) * share]
    if mining.sampling == "random" and len(allowed) > mining.negatives:
        drawn = set(random.Random(seed).sample(allowed, mining.negatives))
        return [doc_id for doc_id in allowed if doc_id in drawn]
    return allowed[: mining.negatives]


def _without_twins(texts: Collection, relevant: Mapping[str, int], candidates: Sequence[str]) -> list[str]:
    """The candidates that are no near-duplicates of a relevant document."""
    known = texts.known(relevant)
    positives = [_words(document.text) for document in texts.get([doc_id for doc_id in relevant if doc_id in known])]
    found = zip(candidates, texts.get(candidates), strict=True)
    return [doc_id for doc_id, document in found if not _is_twin(_words(document.text), positives)]


def _is_twin(words: AbstractSet[str], others: Sequence[AbstractSet[str]]) -> bool:
    return any(len(words & other) >= SAME * max(1, len(words | other)) for other in others)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
