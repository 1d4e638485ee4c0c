"""`rerank score` with a model of feature vectors: scores the documents of a file and writes the run."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from rerank.config import Config
from rerank.data.letor.layouts import is_feature_source, lacks_query_ids, name_of
from rerank.data.letor.store import FeatureSet, open_feature_store
from rerank.data.trec import write_run
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.runs.manifest import manifest_of, tag_of, write_manifest
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, score_features
from rerank.training.device import kept_torch_settings, open_accelerator
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash


@kept_torch_settings()
def score_feature_file(config: Config, checkpoint: Path, out: Path) -> Path:
    """Scores all documents of a file of SVMlight lines with a checkpoint of `rerank train`; writes run and manifest.

    The labels of the lines are not used. Raises UserError for a source that is no such file, for features that the
    model does not have, and if `out` cannot be written.
    """
    manifest, tag, source = manifest_of(out), tag_of(out), Path(config.collection.source)
    if not source.is_file() or not is_feature_source(str(source)):
        raise UserError(
            f"--collection {source}: {_what_is_wrong(source)}, and {checkpoint} is a model of feature vectors; "
            "expected a file of SVMlight lines `label qid:QUERY index:value …`"
        )
    model = open_feature_mlp(checkpoint)
    cache = CollectionFolder(Path(config.output.folder) / name_of(str(source))).features
    store = open_feature_store({"all": source}, cache)
    features, accelerator = _as_trained(store.features, model, source), open_accelerator(config.training)
    run = score_features(model.to(accelerator.device), features, features.qrels(), accelerator)
    write_run(run, out, tag)
    facts = {"model": str(checkpoint), "features": store.checksums, "queries": len(run)}
    write_manifest(manifest, {**facts, "run": {"sha256": file_hash(out)}})
    return out


def _what_is_wrong(source: Path) -> str:
    """Why a source is no file of SVMlight lines."""
    if not source.exists():
        return "no such file"
    if source.is_dir():
        return "is a folder"
    if lacks_query_ids(str(source)):
        return "its first line has features, but no qid:QUERY after the label"
    return "is a file without feature vectors"


def _as_trained(found: FeatureSet, model: FeatureMLP, source: Path) -> FeatureSet:
    """The features in the columns of the model; a file leaves features out that are 0 in all its lines."""
    first, last = found.first_feature, found.first_feature + found.features.shape[1] - 1
    least, most = model.first_feature, model.first_feature + model.features - 1
    if first < least or last > most:
        raise UserError(f"{source}: has features {first} to {last}; the model was trained with {least} to {most}")
    if (first, last) == (least, most):
        return found
    return replace(found, features=np.pad(found.features, ((0, 0), (first - least, most - last))))
