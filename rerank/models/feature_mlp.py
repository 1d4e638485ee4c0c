"""The paper's network for feature vectors: batch norm, a hidden layer with ReLU, batch norm, one score per document."""

import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rerank.batches.features import rows_of, vectors
from rerank.data.letor.store import FeatureSet
from rerank.data.types import Qrels, Run
from rerank.models.packing import evaluating
from rerank.models.products import full_float32
from rerank.models.scoring import check_finite
from rerank.utils.errors import UserError
from rerank.utils.inside import read_regular
from rerank.utils.json_files import parse_json

Transform = Literal["none", "log1p"]
"""The transform of features: none, or sign(x) log(1 + |x|) (Qin et al. 2021), which is not in the paper."""

KIND = "feature_mlp"
"""The kind of a checkpoint, in its config.json."""

CPU_DOCUMENTS = 128
"""Documents of a chunk on a CPU: 512 KB for each intermediate result of 1024 units. A GPU has one chunk."""

DOCUMENTS_PER_FORWARD = 8192
"""Documents of a forward pass: 32 MB for each layer of 1024 units."""


class FeatureConfig(TypedDict):
    """config.json of a checkpoint."""

    features: int
    hidden: int
    transform: NotRequired[Transform]
    first_feature: NotRequired[Literal[0, 1]]


class FeatureMLP(nn.Module):
    """The network of Thonet et al. 2021, "Neural model and compared losses", with `hidden` units (1024 in the paper).

    The weights have torch's default initialisation, with `seed`. The transform is applied before the first batch norm,
    and `dropout`, which the paper does not use, after the second one. `first_feature` is the number in a file of the
    first input.
    """

    in_float32 = True
    """All its products are computed in float32 (`_head_scores`), whatever the precision of a run."""

    def __init__(
        self,
        features: int,
        hidden: int,
        seed: int,
        transform: Transform = "none",
        dropout: float = 0.0,
        first_feature: int = 1,
    ) -> None:
        super().__init__()
        self.features, self.hidden, self.transform, self.first_feature = features, hidden, transform, first_feature
        self.dropout = nn.Dropout(dropout)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.input_norm = nn.BatchNorm1d(features)
            self.hidden_layer = nn.Linear(features, hidden)
            self.hidden_norm = nn.BatchNorm1d(hidden)
            self.output = nn.Linear(hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """(documents,) float32 scores of (documents, features); batch norm would count padding, so there is none."""
        if self.training and len(features) == 1:  # one document has no variance, and its list has no loss
            with evaluating(self):
                return self.forward(features)
        if self.transform == "log1p":
            features = features.sign() * features.abs().log1p()
        if self.training and self.dropout.p:  # the scores are then no linear function of the hidden values
            return self._with_dropout(features)
        first, layer = self.input_norm, self.hidden_layer
        mean, variance = first.get_buffer("running_mean"), first.get_buffer("running_var")
        normed = F.batch_norm(
            features, mean, variance, training=self.training, momentum=first.momentum or 0.0, eps=first.eps
        )
        # The first batch norm's scale and shift are folded into the hidden layer, which is smaller than the batch.
        weight, bias = layer.weight * first.weight, layer.bias + (layer.weight * first.bias).sum(dim=1)
        return _head_scores(normed, weight, bias, self.hidden_norm, self.output)

    @full_float32()
    def _with_dropout(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            hidden = torch.relu(self.hidden_layer(self.input_norm(features.to(self.output.weight.dtype))))
            scores: Tensor = self.output(self.dropout(self.hidden_norm(hidden)))[:, 0]
        return scores


def save_feature_mlp(model: FeatureMLP, folder: Path) -> None:
    """Writes model.safetensors and config.json into a new folder."""
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    settings = {"kind": KIND, "features": model.features, "hidden": model.hidden}
    if model.transform != "none":
        settings["transform"] = model.transform
    if model.first_feature != 1:
        settings["first_feature"] = model.first_feature
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def is_feature_mlp(folder: Path) -> bool:
    """Whether a folder has a model that `save_feature_mlp` wrote."""
    try:
        settings = parse_json(read_regular(folder / "config.json"), dict[str, object])
    except (OSError, ValueError, UserError):
        return False
    return settings.get("kind") == KIND


def open_feature_mlp(folder: Path) -> FeatureMLP:
    """Loads the model that `save_feature_mlp` wrote, in evaluation mode; raises UserError if the folder has none."""
    try:
        settings = parse_json(read_regular(folder / "config.json"), FeatureConfig)
        transform = settings.get("transform", "none")
        weights = load_file(folder / "model.safetensors")
        largest = max((size for weight in weights.values() for size in weight.shape), default=0)
        if max(settings["features"], settings["hidden"]) > largest:  # before anything is allocated
            raise ValueError(
                f"config.json states {settings['features']} features and {settings['hidden']} hidden units"
            )
        first = settings.get("first_feature", 1)
        model = FeatureMLP(settings["features"], settings["hidden"], 0, transform, first_feature=first)
        model.load_state_dict(weights)
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{folder}: not a checkpoint of a model of feature vectors: {reason}") from error
    return model.eval()


def score_features(model: nn.Module, features: FeatureSet, qrels: Qrels, accelerator: Accelerator) -> Run:
    """The run of all queries of a set with these `qrels`. Raises UserError for a score that is not finite."""
    rows = rows_of(features, range(len(features.query_ids)))
    model.eval()
    with torch.inference_mode(), accelerator.autocast():
        size = DOCUMENTS_PER_FORWARD
        chunks = (vectors(features, rows[at : at + size]) for at in range(0, len(rows), size))
        scores = torch.cat([model(chunk.to(accelerator.device)).float().cpu() for chunk in chunks])
    scores_of_queries = scores.split([len(documents) for documents in qrels.values()])
    run = {
        query_id: dict(zip(documents, of_query.tolist(), strict=True))
        for (query_id, documents), of_query in zip(qrels.items(), scores_of_queries, strict=True)
    }
    check_finite(run)
    return run


@full_float32()
def _head_scores(features: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm1d, output: nn.Linear) -> Tensor:
    """`output(norm(relu(features @ weight.T + bias)))[:, 0]`: (documents,), in the type of the parameters.

    Training uses the mean and variance of the hidden values and updates the running ones; evaluation uses the running
    ones. Autocast is disabled: bf16 leaves about a dozen distinct scores. The features, (documents, features), get no
    gradient; the weight is (units, features).

    After the ReLU, a score is a linear function of a document's hidden values h, given their mean and variance. Neither
    the normalised values nor their gradient is materialised, and the documents are processed in chunks that stay in the
    cache: on a CPU the network is bound by memory bandwidth.
    """
    with torch.autocast(features.device.type, enabled=False):
        features = features.detach().to(weight.dtype)
        # The bias becomes one more column of weights, which saves an operation forward and backward.
        inputs = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        layer = torch.cat([weight, bias[:, None]], dim=1)
        parameters = norm.weight, norm.bias, output.weight[0], output.bias[0]
        if norm.training:
            scores: Tensor = _Scores.apply(inputs, layer, norm, *parameters)
            return scores
        mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        slope, constant = _slope_and_constant(*parameters, mean, (variance + norm.eps).rsqrt())
        return torch.cat([torch.relu(chunk @ layer.T) @ slope + constant for chunk in _chunks(inputs)])


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    chunks: tuple[Tensor, ...] = rows.split(CPU_DOCUMENTS if rows.device.type == "cpu" else max(1, len(rows)))
    return chunks


def _slope_and_constant(
    gamma: Tensor, beta: Tensor, w: Tensor, c: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """The slope, (units,), and the constant, (), of a score as a linear function of h."""
    slope = gamma * inverse * w
    return slope, c + beta @ w - mean @ slope


class _Scores(torch.autograd.Function):
    """S = c + sum_u w_u (gamma_u x_u + beta_u), x = (h - mean) inverse, with the batch's mean and variance of h."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, layer: Tensor, norm: nn.BatchNorm1d, *parameters: Tensor) -> Tensor:
        gamma, beta, w, c = parameters
        h = inputs.new_empty(len(inputs), len(layer))
        for chunk, values in zip(_chunks(inputs), _chunks(h), strict=True):
            torch.mm(chunk, layer.T, out=values).relu_()
        mean = h.mean(dim=0)
        squares = torch.stack([(chunk - mean).square_().sum(dim=0) for chunk in _chunks(h)]).sum(dim=0)
        variance = squares / len(h)
        momentum = norm.momentum or 0.0
        norm.get_buffer("running_mean").lerp_(mean, momentum)
        norm.get_buffer("running_var").lerp_(squares / (len(h) - 1), momentum)
        inverse = (variance + norm.eps).rsqrt()
        ctx.save_for_backward(inputs, h, gamma, beta, w, mean, inverse)
        slope, constant = _slope_and_constant(gamma, beta, w, c, mean, inverse)
        return h @ slope + constant

    @staticmethod
    @once_differentiable
    @full_float32()
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, h, gamma, beta, w, mean, inverse = ctx.saved_tensors
        # Sums over the documents: `total` of dS, `projection` of dS x.
        total = gradient.sum()
        projection = (gradient @ h - total * mean) * inverse
        slope = gamma * inverse * w
        # dh of a document is slope (dS - total / n - x projection / n), where x is linear in h.
        factor = -slope * inverse * projection / len(h)
        constant = -slope * total / len(h) - factor * mean
        d_layer = inputs.new_zeros(inputs.shape[1], h.shape[1])
        for chunk, values, d_scores in zip(_chunks(inputs), _chunks(h), _chunks(gradient), strict=True):
            d_h = torch.addcmul(constant, values, factor).addr_(d_scores, slope)
            d_layer.addmm_(chunk.T, d_h.mul_(values.sign()))  # the derivative of the ReLU: 1 or 0
        d_norm = w * projection, w * total
        return None, d_layer.T, None, *d_norm, gamma * projection + beta * total, gradient.sum()
