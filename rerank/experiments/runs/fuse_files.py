"""`rerank fuse`: fuses run files into one, by reciprocal rank or with given or tuned weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rerank.data.folds import read_folds
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import examples, write_run
from rerank.data.types import Run
from rerank.evaluation.compare import map_to_folds
from rerank.evaluation.fusion import RRF_K, Weights, check_weights, fuse_ranks, fuse_scores, queries_of
from rerank.evaluation.measures import measure_name
from rerank.evaluation.weights import MEASURE, tune_on
from rerank.experiments.runs.manifest import manifest_of, tag_of, write_manifest
from rerank.experiments.runs.run_files import FOLDERS_UP, FOLDS, QRELS, find_nearby
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.progress import log


@dataclass(frozen=True)
class Fusion:
    """How runs are fused.

    method: "rrf", the sum of 1 / (k + rank), or "interpolate", a weighted sum of min-max scaled scores.
    rrf_k: the k of rrf; None: 60.
    weights: the weights of interpolate, one a run; if empty, they are tuned.
    qrels: judgments of validation queries to tune on. None: the qrels.txt and folds.json near the runs. The weights of
        a fold are then tuned on its validation queries and apply to its test queries; a query that no fold tests gets
        the means of the folds' weights.
    measure: the measure that chooses the weights; None: nDCG@20.
    """

    method: str = "rrf"
    rrf_k: float | None = None
    weights: Sequence[float] = ()
    qrels: Path | None = None
    measure: str | None = None


def fuse_files(paths: Sequence[Path], out: Path, fusion: Fusion) -> Path:
    """Fuses two TREC runs or more into the run `out`, which has the queries of all of them, and returns `out`.

    `out` + ".json" is its manifest. Raises UserError if a setting belongs to the other method or has a wrong value, if
    a file is missing or malformed, if there is nothing to tune on, and if `out` cannot be written.
    """
    method, rrf_k, weights = fusion.method, fusion.rrf_k, fusion.weights
    names = list(dict.fromkeys(map(str, paths)))
    if len(names) < 2:
        raise UserError(f"fuse: expected at least two runs to fuse, got {len(names)}")
    if method == "rrf" and (weights or fusion.qrels or fusion.measure):
        raise UserError("--weights, --qrels and --measure have no effect on --method rrf; leave them out")
    if method != "rrf" and rrf_k is not None:
        raise UserError(f"--rrf-k {rrf_k:g}: has no effect on --method {method}; leave it out")
    try:
        check_weights(weights or [1.0] * len(names), len(names))
    except ValueError as error:
        raise UserError(f"--weights: {error}") from error
    measure = measure_name(fusion.measure or MEASURE)
    manifest, tag = manifest_of(out), tag_of(out)
    runs = {name: read_run(Path(name)) for name in names}
    sources = [{"run": name, "sha256": file_hash(Path(name))} for name in names]  # `out` may be one of them
    k = RRF_K if rrf_k is None else rrf_k
    facts: dict[str, object] = {"k": k}
    if method == "rrf":
        fused = fuse_ranks(list(runs.values()), k)
    elif weights:
        fused, facts = fuse_scores(list(runs.values()), tuple(weights)), {"weights": tuple(weights)}
    else:
        tuned, facts = _tuned(runs, fusion.qrels, measure)
        fused = fuse_scores(list(runs.values()), tuned)
    write_run(fused, out, tag)
    fused_by = {"method": method, **facts, "runs": sources}
    write_manifest(manifest, {"fusion": fused_by, "run": {"sha256": file_hash(out)}})
    return out


def _tuned(runs: Mapping[str, Run], qrels: Path | None, measure: str) -> tuple[dict[str, Weights], dict[str, object]]:
    """The tuned weights of every query, and the facts about them for the manifest."""
    queries, paths = queries_of(list(runs.values())), list(map(Path, runs))
    if qrels is not None:
        judged = read_qrels(qrels)
        weights = tune_on(runs, judged, measure, f"queries of {qrels}")
        for name, run in runs.items():
            if lacking := [query_id for query_id in judged if query_id not in run]:
                log.info(
                    f"{name}: lacks {len(lacking)} of the {len(judged)} queries of {qrels} ({examples(lacking)}), "
                    "which choose the weights too"
                )
        log.info(f"the weights are tuned on the queries of {qrels}; compare the fused run on other queries")
        return dict.fromkeys(queries, weights), {"weights": weights, "measure": measure, "qrels": _facts(qrels)}
    qrels, folds = find_nearby(paths, QRELS), find_nearby(paths, FOLDS)
    if not (qrels and folds):
        nearby = f"{QRELS} and {FOLDS} next to {paths[0]} or up to {FOLDERS_UP} folders up"
        raise UserError(f"no weights: expected --weights, --qrels FILE of validation queries, or {nearby}")
    known, judged = read_folds(folds), read_qrels(qrels)
    by_fold = {}
    for fold in known:
        valid = {query_id: judged[query_id] for query_id in fold.valid if query_id in judged}
        by_fold[fold.name] = tune_on(runs, valid, measure, f"validation queries of fold {fold.name}")
    fold_of = map_to_folds(known, str(folds))
    means = tuple(map(fmean, zip(*by_fold.values(), strict=True)))
    by_query = {query_id: by_fold[fold_of[query_id]] if query_id in fold_of else means for query_id in queries}
    return by_query, {"weights": by_fold, "measure": measure, "qrels": _facts(qrels), "folds": _facts(folds)}


def _facts(file: Path) -> dict[str, str]:
    return {"file": str(file), "sha256": file_hash(file)}
