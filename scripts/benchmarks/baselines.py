"""Baselines: a plain CEDR-style loop, sentence-transformers' CrossEncoder, and SmoothI by autograd."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rerank.batches.templates import PairTemplate
from rerank.losses import prepare_inputs, rank_indicators
from rerank.losses.metrics import metric_from_indicators, parse


class Cedr(nn.Module):
    """An encoder with a linear layer, batched as by MacAvaney et al. (2019, CEDR, section 2 and its code).

    Queries and documents of a batch are padded to the longest of each. If that does not fit the encoder, all documents,
    with their padding, are split into the same number of equal parts, and all parts of all documents are one forward
    pass. A document's [CLS] vectors are averaged, including those of parts that are only padding.
    """

    def __init__(self, encoder: Any, template: PairTemplate, max_length: int, pad_id: int) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.head = nn.Linear(encoder.config.hidden_size, 1)
        self.template = template
        self.max_tokens = max_length - len(template.prefix) - len(template.middle) - len(template.suffix)
        self.pad_id = pad_id

    def forward(self, queries: Sequence[Sequence[int]], documents: Sequence[Sequence[int]]) -> Tensor:
        """(documents,) scores of token ids without special tokens; each document has its own query."""
        device = self.head.weight.device
        query, longest = max(map(len, queries)), max(1, *map(len, documents))
        parts = -(-longest // (self.max_tokens - query))
        size = -(-longest // parts)
        ids, mask = _padded(queries, query, self.pad_id, device)
        texts, text_mask = _padded(documents, parts * size, self.pad_id, device)
        cut = [tensor.view(-1, parts, size).transpose(0, 1).reshape(-1, size) for tensor in (texts, text_mask)]
        rows, template = parts * len(documents), self.template
        special = [
            torch.tensor(part, device=device).expand(rows, len(part))
            for part in (template.prefix, template.middle, template.suffix)
        ]
        pieces = [special[0], ids.repeat(parts, 1), special[1], cut[0], special[2]]
        ones = [torch.ones_like(part) for part in special]
        inputs = {
            "input_ids": torch.cat(pieces, dim=1),
            "attention_mask": torch.cat([ones[0], mask.repeat(parts, 1), ones[1], cut[1], ones[2]], dim=1),
        }
        if template.token_types is not None:
            types = [torch.full_like(piece, kind) for piece, kind in zip(pieces, template.token_types, strict=True)]
            inputs["token_type_ids"] = torch.cat(types, dim=1)
        vectors = self.encoder(**inputs).last_hidden_state[:, 0].view(parts, len(documents), -1)
        scores: Tensor = self.head(vectors.mean(dim=0))[:, 0]
        return scores


def _padded(texts: Sequence[Sequence[int]], length: int, pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    ids = torch.full((len(texts), length), pad_id)
    mask = torch.zeros(len(texts), length, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.as_tensor(text)
        mask[row, : len(text)] = 1
    return ids.to(device), mask.to(device)


def cedr_step(
    model: Cedr,
    optimizer: torch.optim.Optimizer,
    lists: Sequence[tuple[Sequence[int], Sequence[Sequence[int]], Sequence[int]]],
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    dtype: torch.dtype = torch.float32,
) -> None:
    """One step over lists of (query, documents, labels): forward and backward pass per list, then the optimizer.

    `dtype` is the type of the products.
    """
    device = model.head.weight.device
    for query, documents, labels in lists:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            scores = model([query] * len(documents), documents)
        grid = scores.float()[None]
        truth = torch.tensor([labels], dtype=grid.dtype, device=device)
        (loss(grid, truth, torch.ones_like(truth, dtype=torch.bool)).mean() / len(lists)).backward()
    optimizer.step()
    optimizer.zero_grad()


def smoothi_graph(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """The loss `smoothi` (NDCG, default settings) as a plain recursion that autograd differentiates: (lists,)."""
    metric = parse("ndcg")
    scores, labels, mask, idle = prepare_inputs(scores, labels, mask)
    lowest = scores.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    rows = rank_indicators(scores - lowest, mask, metric.cutoff)
    return (1 - metric_from_indicators(rows, labels, metric)).masked_fill(idle, 0)
