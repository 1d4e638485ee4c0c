"""The paper's network for feature vectors: batch norm, a hidden layer with ReLU, batch norm, one score per document.

A transform of the features in front of it and dropout are further settings, which the paper does not have.
"""

import json
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.features import Vectors
from rerank.models.batchnorm_head import batchnorm_head
from rerank.models.dropout import DropoutKeys, SeededDropout
from rerank.models.feature_transforms import log1p, quantile_ranks
from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json

Transform = Literal["none", "log1p", "quantile"]
"""See `rerank.models.feature_transforms`."""


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
        dropout: rate of the hidden values in front of the output, in training.
        quantiles: (features, quantiles) of the training documents, for the transform "quantile".

    Raises:
        ValueError: a transform without its quantiles.
    """

    quantiles: Tensor
    in_float32 = True
    """Whatever the precision of a run: `batchnorm_head` has all its products."""

    def __init__(
        self,
        features: int,
        hidden: int,
        seed: int,
        transform: Transform = "none",
        dropout: float = 0.0,
        quantiles: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.features, self.hidden, self.transform = features, hidden, transform
        if transform == "quantile":
            if quantiles is None or quantiles.shape != (features, quantiles.shape[-1]):
                raise ValueError(f"transform quantile: expected the quantiles of {features} features")
            self.register_buffer("quantiles", quantiles)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.input_norm = nn.BatchNorm1d(features)
            self.hidden_layer = nn.Linear(features, hidden)
            self.hidden_norm = nn.BatchNorm1d(hidden)
            self.output = nn.Linear(hidden, 1)
        self.dropout = SeededDropout(dropout, 0, DropoutKeys())

    def forward(self, inputs: Vectors) -> Tensor:
        """(documents,) float32 scores."""
        if self.training and len(inputs.features) == 1:  # one document has no variance, and its list has no loss
            self.eval()
            scores = self.forward(inputs)
            self.train()
            return scores
        first, layer = self.input_norm, self.hidden_layer
        mean, variance = first.get_buffer("running_mean"), first.get_buffer("running_var")
        features = self._transformed(inputs.features)
        normed = F.batch_norm(
            features, mean, variance, training=self.training, momentum=first.momentum or 0.0, eps=first.eps
        )
        # The first batch norm's scale and shift are folded into the hidden layer, which is smaller than the batch.
        weight, bias = layer.weight * first.weight, layer.bias + (layer.weight * first.bias).sum(dim=1)
        return batchnorm_head(normed, weight, bias, self.hidden_norm, self.output, self.dropout, inputs.seeds)

    def _transformed(self, features: Tensor) -> Tensor:
        if self.transform == "log1p":
            return log1p(features)
        return quantile_ranks(features, self.quantiles) if self.transform == "quantile" else features


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
        weights = load_file(folder / "model.safetensors")
        model = FeatureMLP(
            settings["features"],
            settings["hidden"],
            0,
            settings.get("transform", "none"),
            quantiles=weights.get("quantiles"),
        )
        model.load_state_dict(weights)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder}: not a checkpoint of a model of feature vectors: {reason}") from error
    return model.eval()
