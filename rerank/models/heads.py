"""Folds the linear layer on [CLS] into the head of the architecture's own sequence classifier, and takes it out again.

Other libraries then read a checkpoint as an ordinary `…ForSequenceClassification` with one output and compute the same
scores. Such a head is dense → activation → (LayerNorm) → output; w·x + b passes through it in one of three forms:

identity: tanh(εx)/ε = x for small ε. dense = ε·I, output = w/ε.
pair: act(z) - act(-z) = z for z·Φ(z), as ReLU, GELU and SiLU are: exact at any size. Rows 0 and 1 of dense are w and
    -w, the others 0; output = (1, -1, 0, …).
small pair: as `pair`, with rows ±δw and output = (√eps/δ)(1, -1, 0, …). For values whose variance is far below its
    eps, LayerNorm only subtracts the mean and divides by √eps.

The biases are 0, except b in the output layer. The scales are powers of two, so w and b are recovered exactly.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from rerank.models.encoder_inputs import padded
from rerank.models.packing import evaluating, probe_passages
from rerank.models.products import full_float32

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Folded = tuple["PreTrainedModel", dict[str, str | float]]
"""A classifier, and what its config records of its head."""

FORMS = {"identity": 2.0**-13, "pair": 1.0, "small pair": 2.0**-17}
"""The factor of w, or of the identity, in the dense layer: ε, 1 and δ.

Smaller factors lose digits in float16, larger ones in float32. With 2^-13 the scores equal those of a linear layer in
both; with 2^-17 they differ by 3e-5 in float32 and by 0.1 in bfloat16 and float16, for scores up to 20
(docs/guides/sharing.md).
"""

TOLERANCE = 1e-4
"""Allowed difference of the probe's scores, relative to the largest; a wrong activation gives about 0.5."""


class Float32Linear(nn.Linear):
    """A linear layer that computes in float32 under autocast: bf16 leaves a dozen distinct values among 150 scores."""

    @classmethod
    def of(cls, layer: nn.Linear) -> "Float32Linear":
        """Shares the weights of a linear layer."""
        found = cls(layer.in_features, layer.out_features, device="meta")
        found.weight, found.bias = layer.weight, layer.bias
        return found

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


class _Head(NamedTuple):
    """The layers of a sequence classifier's head; `norm` is None if it has none."""

    output: nn.Linear
    dense: nn.Linear
    norm: nn.LayerNorm | None = None

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for layer in self if layer is not None for parameter in layer.parameters()]

    @torch.no_grad()
    def write(self, form: str, scale: float, weight: Tensor, bias: Tensor) -> None:
        """Sets the layers to compute weight·x + bias, (1, hidden) and (1,)."""
        for parameter in self.parameters():
            parameter.zero_()
        self.output.bias.copy_(bias)
        if self.norm is not None:
            self.norm.weight.fill_(1)
        if form == "identity":
            self.dense.weight.fill_diagonal_(scale)
            self.output.weight.copy_(weight / scale)
        else:
            pair = torch.tensor([1.0, -1.0], device=weight.device)
            self.dense.weight[:2] = scale * pair[:, None] * weight
            self.output.weight[0, :2] = pair * ((math.sqrt(self.norm.eps) if self.norm else 1) / scale)

    def read(self, form: str, scale: float) -> tuple[Tensor, Tensor]:
        """The weight (1, hidden) and bias (1,) that `write` was given."""
        weight = self.output.weight * scale if form == "identity" else self.dense.weight[:1] / scale
        return weight.detach(), self.output.bias.detach().clone()


@contextmanager
def folded(body: "PreTrainedModel", head: nn.Linear, pad_id: int) -> Iterator[Folded | None]:
    """Yields the sequence classifier that computes `head` on the [CLS] vector of `body`, and the form of its head.

    The classifier contains `body` itself, which is restored afterwards. Yields None if the architecture has no
    classifier, or if its scores of two short passages differ.
    """
    import transformers

    config = copy.deepcopy(body.config)
    config.num_labels = 1
    if hasattr(config, "classifier_pooling"):
        config.classifier_pooling = "bos" if config.model_type == "eurobert" else "cls"  # the first token
    if type(config) not in transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        yield None
        return
    with torch.device("meta"):
        classifier: PreTrainedModel = transformers.AutoModelForSequenceClassification.from_config(config)
    empty = classifier.base_model
    if type(empty) is not type(body):
        yield None
        return
    setattr(classifier, classifier.base_model_prefix, body)
    poolers = [name for name, _ in empty.named_children() if getattr(body, name, None) is None]
    try:
        in_body = {id(parameter) for parameter in body.parameters()}
        for name in poolers:  # a pooler is part of the classifier's head
            setattr(body, name, getattr(empty, name))
        with evaluating(body):
            yield _fold_into(classifier.eval(), body, head, pad_id, in_body)
    finally:
        for name in poolers:
            setattr(body, name, None)


def _fold_into(
    classifier: "PreTrainedModel", body: "PreTrainedModel", head: nn.Linear, pad_id: int, in_body: set[int]
) -> Folded | None:
    """The result of `folded`; `in_body` has the ids of the parameters that belong to no head."""
    names = _find_head(classifier, head.in_features, in_body)
    if names is None:
        return None
    for name in names.values():
        classifier.get_submodule(name).to_empty(device=head.weight.device)
    found: dict[str, Any] = {layer: classifier.get_submodule(name) for layer, name in names.items()}
    layers = _Head(**found)
    if layers.output.bias is None or any(t.is_meta for t in [*classifier.parameters(), *classifier.buffers()]):
        return None
    for form in ("identity", "pair") if layers.norm is None else ("small pair",):  # the activation decides
        layers.write(form, FORMS[form], head.weight, head.bias)
        exact = all(map(torch.equal, layers.read(form, FORMS[form]), (head.weight, head.bias)))
        if exact and _agree(classifier, body, head, pad_id):
            return classifier, {"form": form, "scale": FORMS[form], **names}
    return None


def _find_head(classifier: "PreTrainedModel", hidden: int, in_body: set[int]) -> dict[str, str] | None:
    """The names of the classifier's layers outside the body, by field of _Head; None if it has other layers."""
    names: dict[str, str] = {}
    for name, module in classifier.named_modules():
        if all(id(parameter) in in_body for parameter in module.parameters(recurse=False)):
            continue
        layer = None
        if isinstance(module, nn.Linear):
            layer = {(hidden, hidden): "dense", (hidden, 1): "output"}.get((module.in_features, module.out_features))
        elif isinstance(module, nn.LayerNorm) and module.normalized_shape == (hidden,):
            layer = "norm"
        if layer is None or layer in names:
            return None
        names[layer] = name
    return names if {"output", "dense"} <= names.keys() else None


@torch.no_grad()
def _agree(classifier: "PreTrainedModel", body: "PreTrainedModel", head: nn.Linear, pad_id: int) -> bool:
    """Whether classifier and head give two passages, one of them padded, the same scores."""
    inputs = padded(probe_passages(pad_id, body.config.vocab_size, 12, (12, 7)).to(head.weight.device), pad_id)
    with full_float32():
        vectors = body(**inputs).last_hidden_state[:, 0].float()
        expected = nn.functional.linear(vectors, head.weight, head.bias)
        error = (classifier(**inputs).logits - expected).abs().max()
    rounding = 1e-5 * head.weight.norm() * vectors.norm(dim=1).max()
    return bool(error <= TOLERANCE * (expected - head.bias).abs().max() + rounding)


def unfolded(
    classifier: "PreTrainedModel", facts: dict[str, str | float]
) -> "tuple[PreTrainedModel, Float32Linear] | None":
    """The body and the linear layer of a classifier that `folded` made, with the `facts` that it yielded.

    None if the weights of the head have another form, as after training in another library.
    """
    modules = dict(classifier.named_modules())
    try:
        form, scale = str(facts["form"]), float(facts["scale"])
        layers = _Head(**{layer: modules[str(facts[layer])] for layer in _Head._fields if layer in facts})
        weight, bias = layers.read(form, scale)
        expected = copy.deepcopy(layers)
        expected.write(form, scale, weight, bias)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):  # other layers, or of other shapes
        return None
    if not all(map(torch.equal, layers.parameters(), expected.parameters())):
        return None
    head = Float32Linear(weight.shape[1], 1)
    head.load_state_dict({"weight": weight, "bias": bias})
    body: PreTrainedModel = getattr(classifier, classifier.base_model_prefix)
    in_head = {id(parameter) for parameter in layers.parameters()}
    for name, child in list(body.named_children()):
        parameters = list(child.parameters())
        if parameters and all(id(parameter) in in_head for parameter in parameters):  # the pooler
            setattr(body, name, None)
    return body, head
