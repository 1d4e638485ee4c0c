"""A folder of runs as `rerank train` leaves it, made without training, for tests of charts and of the report."""

import json
import random
from dataclasses import asdict
from pathlib import Path

from rerank.config import CollectionSettings, Config, FirstStageSettings, LossSettings, OutputSettings
from rerank.data.folds import make_folds, write_folds
from rerank.data.runs import read_qrels
from rerank.data.trec import write_qrels, write_run
from rerank.data.types import Fold
from rerank.experiments.runs.manifest import write_manifest
from rerank.experiments.runs.settings import to_toml
from rerank.utils.integrity import record_of
from tests.support.small_collection import write_collection

DEPTH = 8
FIRST_STAGE = "bm25"


def write_results(home: Path, experiments: dict[str, float], folds: int = 3, epochs: int = 3) -> Path:
    """Makes home/towns, a collection, and home/runs/towns, its experiments by name; gives the latter.

    A higher number puts relevant documents higher; 0 is chance. Every topic has its six judged documents and four of
    others as candidates of the first stage, of which DEPTH were re-ranked.
    """
    write_collection(home / "towns")
    qrels = read_qrels(home / "towns" / "qrels" / "test.tsv")
    rng = random.Random(1)
    everything = [doc_id for judged in qrels.values() for doc_id in judged]
    first = {}
    for query_id, judged in qrels.items():
        others = rng.sample([doc_id for doc_id in everything if doc_id not in judged], 4)
        first[query_id] = {doc_id: rng.uniform(1, 9) for doc_id in [*judged, *others]}
    folder = home / "runs" / "towns"
    write_run(first, folder / f"{FIRST_STAGE}.run", "bm25")
    write_qrels(qrels, folder / "qrels.txt")
    parts = make_folds(qrels, folds)
    write_folds(folder / "folds.json", parts)
    lengths = [100 + 150 * (i % 5) for i in range(len(everything))]
    statistics = {"documents": len(lengths), "documents_empty": 0, "tokens": sum(lengths)}
    statistics |= {"documents_cut": len(lengths) // 5, "tokens_cut": 100 * (len(lengths) // 5)}
    for name, skill in experiments.items():
        settings = Config(
            collection=CollectionSettings(source=str(home / "towns")),
            first_stage=FirstStageSettings(depth=DEPTH),
            loss=LossSettings(name="hinge"),
            output=OutputSettings(name=name),
        )
        (folder / name).mkdir()
        (folder / name / "config.toml").write_text(to_toml(settings))
        whole = {}
        for fold in parts:
            run = {}
            for query_id in fold.test:
                best = sorted(first[query_id], key=first[query_id].get, reverse=True)[:DEPTH]
                run[query_id] = {d: skill * qrels[query_id].get(d, 0) + rng.random() for d in best}
            write_fold(folder / name / f"fold{fold.name}", run, statistics, epochs, rng)
            whole |= run
        write_run(whole, folder / name / "all.run", name)
    return folder


def write_fold(folder: Path, run: dict, statistics: dict, epochs: int, rng: random.Random) -> None:
    """A finished fold."""
    write_run(run, folder / "test.run", folder.parent.name)
    with (folder / "log.jsonl").open("w") as log:
        for epoch in range(1, epochs + 1):
            means = {"loss": 1 / epoch, "ndcg": rng.random(), "valid": 0.5, "first_stage": 0.25}
            log.write(json.dumps({"epoch": epoch, **means, "seconds": 2.0, "documents": 16, "tokens": 400}) + "\n")
    facts = {
        "epochs": epochs,
        "best_epoch": 1,
        "seconds": 90.0,
        "peak_memory": 2**30,
        "device": "cpu",
        "precision": "no",
    }
    facts |= {"texts": {**statistics, "queries_cut": 0}, "config": {}, "best_valid": 0.5, "outcome": {}, "qrels": {}}
    facts |= {"fold": asdict(Fold(folder.name, (), (), tuple(run))), "files": record_of(folder, [folder / "log.jsonl"])}
    write_manifest(folder / "manifest.json", facts)
