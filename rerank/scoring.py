"""Model + candidates -> Run."""

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from rerank.batches.batch import Pairs
from rerank.batches.text import TextInputs
from rerank.errors import UserError
from rerank.progress import progress
from rerank.types import Candidates, Run


def score(
    model: nn.Module,
    inputs_of: TextInputs,
    candidates: Sequence[Candidates],
    accelerator: Accelerator,
    tokens_per_forward: int,
    what: str = "scoring",
) -> Run:
    """Scores every candidate once, the processes sharing the work, and gives every process the whole run.

    Documents are taken longest first across queries, so that those of one forward pass are of like length.
    Raises UserError for a score that is not finite.
    """
    pairs = [(c.query_id, doc_id) for c in candidates for doc_id in c.doc_ids]
    chunks = by_length(pairs, inputs_of, tokens_per_forward)
    mine = chunks[accelerator.process_index :: accelerator.num_processes]
    plain = accelerator.unwrap_model(model)
    plain.eval()
    found: list[tuple[str, str, float]] = []
    with torch.inference_mode(), accelerator.autocast():
        for chunk in progress(mine, len(mine), what, show=accelerator.is_main_process):
            scores = plain(inputs_of(chunk).to(accelerator.device)).float().cpu().tolist()
            found += [(query_id, doc_id, value) for (query_id, doc_id), value in zip(chunk, scores, strict=True)]
    if accelerator.num_processes > 1:
        found = gather_object(found)
    run: Run = {c.query_id: dict.fromkeys(c.doc_ids, float("nan")) for c in candidates}
    for query_id, doc_id, value in found:
        run[query_id][doc_id] = value
    for query_id, scores_of in run.items():
        for doc_id, value in scores_of.items():
            if not abs(value) < float("inf"):
                raise UserError(f"query {query_id}, document {doc_id}: the model's score is {value}; is it broken?")
    return run


def by_length(pairs: Pairs, inputs_of: TextInputs, tokens_per_forward: int) -> list[Pairs]:
    """The pairs in chunks, longest passages first; a chunk's padded passages are within the number of tokens.

    A document whose passages exceed it alone is a chunk of its own.
    """
    sizes = {
        pair: (int(lengths.max()), len(lengths)) for pair in pairs if (lengths := inputs_of.lengths(*pair)) is not None
    }
    chunks: list[list[tuple[str, str]]] = []
    longest = passages = 0
    for pair in sorted(pairs, key=lambda pair: sizes[pair], reverse=True):
        length, count = sizes[pair]
        if not chunks or longest * (passages + count) > tokens_per_forward:
            chunks.append([])
            longest, passages = length, 0
        chunks[-1].append(pair)
        passages += count
    return list(chunks)
