"""The cross-encoder: packed passages of query and document -> one score a document."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.errors import UserError
from rerank.models.loading import load_encoder

HEAD_FILE = "head.safetensors"
POOLINGS = ("mean", "first", "max", "sum")


class Float32Linear(nn.Linear):
    """A dense layer that works in float32 under autocast: in bf16, 150 scores would fall on a dozen values."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class CrossEncoder(nn.Module):
    """Any Hugging Face encoder with a dense layer on its [CLS] vector, or a cross-encoder with its own head.

    The paper averages a document's [CLS] vectors and puts the dense layer on the mean. That layer is linear, so the
    score is the mean of the passages' scores; every pooling is one of passage scores here.
    """

    def __init__(self, encoder: Any, head: Float32Linear | None, pooling: str, pad_id: int) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.head = head
        self.pooling = pooling
        self.pad_id = pad_id

    def forward(self, inputs: Packed) -> Tensor:
        """(documents,) float32 scores."""
        return pool(self.passage_scores(inputs), inputs.documents, self.pooling)

    def passage_scores(self, inputs: Packed) -> Tensor:
        """(passages,) float32 scores; passages of like length go through the encoder together, so little is padded."""
        lengths = inputs.offsets.diff().tolist()
        groups = of_like_length(lengths)
        scores = torch.cat([self._group_scores(inputs, group, max(lengths[p] for p in group)) for group in groups])
        places = torch.tensor([place for group in groups for place in group], device=scores.device)
        return scores[places.argsort()]

    def _group_scores(self, inputs: Packed, group: list[int], longest: int) -> Tensor:
        chosen = torch.tensor(group, device=inputs.offsets.device)
        places = inputs.offsets[chosen][:, None] + torch.arange(longest, device=chosen.device)
        mask = places < inputs.offsets[chosen + 1][:, None]
        places = places.where(mask, 0)
        padded = {"input_ids": inputs.input_ids[places].where(mask, self.pad_id), "attention_mask": mask.long()}
        if inputs.token_types is not None:
            padded["token_type_ids"] = inputs.token_types[places].where(mask, 0)
        out = self.encoder(**padded)
        if self.head is None:
            scores: Tensor = out.logits[:, 0].float()
        else:
            scores = self.head(out.last_hidden_state[:, 0])[:, 0]
        return scores

    def parameter_groups(self, lr: float, head_lr: float) -> list[dict[str, Any]]:
        """The parameters for an optimizer: the encoder's with `lr`, those of the layers on top with `head_lr`."""
        body = self.encoder if self.head is not None else self.encoder.base_model
        inside = {id(parameter) for parameter in body.parameters()}
        return [
            {"params": [p for p in self.parameters() if id(p) in inside], "lr": lr},
            {"params": [p for p in self.parameters() if id(p) not in inside], "lr": head_lr},
        ]


def of_like_length(lengths: list[int]) -> list[list[int]]:
    """The places of these lengths in groups, longest first; none is below three quarters of its group's longest.

    >>> of_like_length([100, 30, 400, 90])
    [[2], [0, 3], [1]]
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if not groups or lengths[place] < 0.75 * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(place)
    return groups


def pool(passage_scores: Tensor, documents: Tensor, pooling: str) -> Tensor:
    """(passages,) scores -> (documents,) scores by the mean, first, max or sum over each document's passages.

    >>> pool(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), "mean")
    tensor([2., 5.])
    """
    how = {"mean": "mean", "max": "amax", "sum": "sum"}
    if pooling == "first":
        first = torch.ones_like(documents, dtype=torch.bool)
        first[1:] = documents[1:] != documents[:-1]
        return passage_scores[first]
    empty = passage_scores.new_zeros(int(documents[-1]) + 1)
    return empty.scatter_reduce(0, documents, passage_scores, how[pooling], include_self=False)


def open_cross_encoder(name: str, pooling: str, seed: int) -> tuple[CrossEncoder, Any, int]:
    """The model of a name or folder, its tokenizer, and the tokens that fit one passage.

    A folder that `save_cross_encoder` wrote has its own dense layer; an encoder gets a new one, drawn with `seed`.
    Raises UserError where the encoder cannot be had.
    """
    loaded = load_encoder(name)
    head = None
    if not loaded.own_head:
        head = Float32Linear(loaded.hidden_size, 1)
        nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.bias)
        if (Path(name) / HEAD_FILE).is_file():
            _load_head(head, Path(name) / HEAD_FILE)
    else:
        for module in loaded.model.modules():
            if type(module) is nn.Linear and module.out_features == 1:
                module.__class__ = Float32Linear
    return CrossEncoder(loaded.model, head, pooling, loaded.tokenizer.pad_token_id), loaded.tokenizer, loaded.max_length


def _load_head(head: nn.Linear, file: Path) -> None:
    try:
        head.load_state_dict(load_file(file))
    except Exception as error:  # safetensors and torch each have their own
        raise UserError(f"{file}: not the dense layer of this encoder: {str(error).splitlines()[0]}") from error


def save_cross_encoder(model: CrossEncoder, tokenizer: Any, folder: Path, max_doc_tokens: int) -> None:
    """Writes an ordinary Hugging Face folder, the dense layer beside it, and our text settings in its config."""
    model.encoder.config.rerank = {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens}
    model.encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if model.head is not None:
        save_file(model.head.state_dict(), folder / HEAD_FILE)
