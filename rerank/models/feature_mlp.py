"""The paper's network for feature vectors: batch norm, a hidden layer with ReLU, batch norm, one score per document."""

import json
from pathlib import Path
from typing import TypedDict

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.features import Vectors
from rerank.models.batchnorm_head import batchnorm_head
from rerank.utils.errors import UserError
from rerank.utils.json_files import parse_json

KIND = "feature_mlp"


class NetworkFacts(TypedDict):
    """config.json of a network."""

    kind: str
    features: int
    hidden: int


class FeatureMLP(nn.Module):
    """The network of Thonet et al. 2021, "Neural model and compared losses", with `hidden` units (1024 in the paper).

    `features` is the number of inputs. The weights have torch's default initialisation, with `seed`.
    """

    def __init__(self, features: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.features, self.hidden = features, hidden
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
        first, layer = self.input_norm, self.hidden_layer
        mean, variance = first.get_buffer("running_mean"), first.get_buffer("running_var")
        normed = F.batch_norm(
            inputs.features, mean, variance, training=self.training, momentum=first.momentum or 0.0, eps=first.eps
        )
        # The first batch norm's scale and shift are folded into the hidden layer, which is smaller than the batch.
        weight, bias = layer.weight * first.weight, layer.bias + (layer.weight * first.bias).sum(dim=1)
        return batchnorm_head(normed, weight, bias, self.hidden_norm, self.output)


def save_feature_mlp(model: FeatureMLP, folder: Path) -> None:
    """Writes model.safetensors and config.json into a new folder."""
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    settings = {"kind": KIND, "features": model.features, "hidden": model.hidden}
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def open_feature_mlp(folder: Path) -> FeatureMLP:
    """Loads the model that `save_feature_mlp` wrote, in evaluation mode; raises UserError if the folder has none."""
    try:
        settings = parse_json((folder / "config.json").read_bytes(), NetworkFacts)
        if settings["kind"] != KIND:
            raise ValueError(f"config.json has kind {settings['kind']}, expected {KIND}")
        weights = load_file(folder / "model.safetensors")
        shape = list(weights["hidden_layer.weight"].shape) if "hidden_layer.weight" in weights else None
        if shape != [settings["hidden"], settings["features"]]:
            raise ValueError(
                f"config.json has {settings['hidden']} × {settings['features']} units, the weights {shape}"
            )
        model = FeatureMLP(settings["features"], settings["hidden"], seed=0)
        model.load_state_dict(weights)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder}: not a checkpoint of a model of feature vectors: {reason}") from error
    return model.eval()
