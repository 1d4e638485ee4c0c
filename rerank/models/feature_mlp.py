"""The paper's network for feature vectors: batch norm, a hidden layer with ReLU, batch norm, one score per document."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.features import Vectors, rows_of, vectors
from rerank.data.letor.store import FeatureSet
from rerank.data.types import Qrels, Run
from rerank.models.batchnorm_head import batchnorm_head
from rerank.models.scoring import check_finite
from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json

Transform = Literal["none", "log1p"]
"""Of features: none, or sign(x) log(1 + |x|) (Qin et al. 2021), which the paper does not have."""


class NetworkFacts(TypedDict):
    """config.json of a network."""

    kind: Literal["feature_mlp"]
    features: int
    hidden: int
    transform: NotRequired[Transform]


class FeatureMLP(nn.Module):
    """The network of Thonet et al. 2021, "Neural model and compared losses", with `hidden` units (1024 in the paper).

    The weights have torch's default initialisation, with `seed`.

    Args:
        features: the number of inputs.
        hidden: the number of hidden units.
        seed: decides the weights.
        transform: of the features, in front of the first batch norm.
    """

    in_float32 = True
    """Whatever the precision of a run: `batchnorm_head` has all its products."""

    def __init__(self, features: int, hidden: int, seed: int, transform: Transform = "none") -> None:
        super().__init__()
        self.features, self.hidden, self.transform = features, hidden, transform
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.input_norm = nn.BatchNorm1d(features)
            self.hidden_layer = nn.Linear(features, hidden)
            self.hidden_norm = nn.BatchNorm1d(hidden)
            self.output = nn.Linear(hidden, 1)

    def forward(self, inputs: Vectors) -> Tensor:
        """(documents,) float32 scores."""
        if self.training and len(inputs.features) == 1:  # one document has no variance, and its list has no loss
            self.eval()
            scores = self.forward(inputs)
            self.train()
            return scores
        features = inputs.features
        if self.transform == "log1p":
            features = features.sign() * features.abs().log1p()
        first, layer = self.input_norm, self.hidden_layer
        mean, variance = first.get_buffer("running_mean"), first.get_buffer("running_var")
        normed = F.batch_norm(
            features, mean, variance, training=self.training, momentum=first.momentum or 0.0, eps=first.eps
        )
        # The first batch norm's scale and shift are folded into the hidden layer, which is smaller than the batch.
        weight, bias = layer.weight * first.weight, layer.bias + (layer.weight * first.bias).sum(dim=1)
        return batchnorm_head(normed, weight, bias, self.hidden_norm, self.output)


def save_feature_mlp(model: FeatureMLP, folder: Path) -> None:
    """Writes model.safetensors and config.json into a new folder."""
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    settings: NetworkFacts = {"kind": "feature_mlp", "features": model.features, "hidden": model.hidden}
    if model.transform != "none":
        settings["transform"] = model.transform
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def open_feature_mlp(folder: Path) -> FeatureMLP:
    """Loads the model that `save_feature_mlp` wrote, in evaluation mode; raises UserError if the folder has none."""
    try:
        settings = parse_json((folder / "config.json").read_bytes(), NetworkFacts)
        model = FeatureMLP(settings["features"], settings["hidden"], 0, settings.get("transform", "none"))
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder}: not a checkpoint of a model of feature vectors: {reason}") from error
    return model.eval()


DOCUMENTS_PER_FORWARD = 8192
"""Each layer of 1024 units then takes 32 MB."""


def score_features(model: Any, features: FeatureSet, accelerator: Accelerator) -> Tensor:
    """(documents,) float32 scores on the CPU, query by query; raises UserError for a score that is not finite."""
    rows = rows_of(features, range(len(features.query_ids)))
    model.eval()
    with torch.inference_mode(), accelerator.autocast():
        scores = torch.cat(
            [
                model(Vectors(vectors(features, rows[start : start + DOCUMENTS_PER_FORWARD])).to(accelerator.device))
                .float()
                .cpu()
                for start in range(0, len(rows), DOCUMENTS_PER_FORWARD)
            ]
        )
    if not scores.isfinite().all():
        first = int(scores.isfinite().int().argmin())
        query = int(np.searchsorted((features.stops - features.starts).cumsum(), first, side="right"))
        document = features.doc_ids(query)[int(rows[first] - features.starts[query])]
        check_finite(features.query_ids[query], document, float(scores[first]))
    return scores


def run_of(qrels: Qrels, scores: Tensor) -> Run:
    """The run of the scores of `score_features`; `qrels` are those of the feature set, in the same order."""
    values = scores.tolist()
    offsets = np.cumsum([0, *map(len, qrels.values())]).tolist()
    return {
        query_id: dict(zip(doc_ids, values[start:stop], strict=True))
        for (query_id, doc_ids), (start, stop) in zip(qrels.items(), pairwise(offsets), strict=True)
    }
