"""Packed passages against padded ones, which transformers encodes itself, on the device."""

import torch
from torch import Tensor, nn
from transformers import AutoModel

from rerank.batches.batch import Packed
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.memory import open_budget
from rerank.models.padding import pad
from rerank.models.pair_chunks import pairs_of
from rerank.models.scoring import passage_scores
from scripts.benchmarks.workload import on_device
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import SCORE_BOUNDS, encoder_folder, of_spread, open_documents, opened, precisions
from scripts.gpu_check.sizes import Setting

PASSAGES = 8
"""Padded passages of a forward pass."""


def check(setting: Setting) -> list[Row]:
    """A row for each encoder and each precision."""
    return [_compared(setting, name, precision) for name in setting.sizes.encoders for precision in precisions(setting)]


@torch.inference_mode()
def _compared(setting: Setting, name: str, precision: str) -> Row:
    lists, documents = setting.sizes.encoders[name]
    with encoder_folder(name) as folder, opened(setting, precision) as accelerator:
        workload = open_documents(folder, lists, documents, setting.sizes)
        model = on_device(workload.model, accelerator).eval()
        inputs = workload.builder(pairs_of(workload.candidates))
        budget = open_budget("auto", accelerator.device)
        packed = passage_scores(model, inputs, accelerator.device, accelerator.autocast, budget)
        body = AutoModel.from_pretrained(folder, attn_implementation="sdpa").to(accelerator.device).eval()
        with accelerator.autocast():
            padded = _padded_scores(body, model, inputs, accelerator.device)
    what = f"packed against padded, {name}, {precision}: difference / spread"
    if model.is_padded:
        return Row(what, f"not packed: {model.padding_reason}", "packed", False)
    return at_most(what, of_spread(packed, padded), SCORE_BOUNDS[precision])


def _padded_scores(body: nn.Module, model: CrossEncoder, inputs: Packed, device: torch.device) -> Tensor:
    """(passages,) float32 scores on the CPU: the model's linear layer on the vectors of the body."""
    count = len(inputs.documents)
    scores = []
    for begin in range(0, count, PASSAGES):
        some = inputs.take(range(begin, min(begin + PASSAGES, count)))
        arguments, _ = pad(some.to(device), model.pad_id)
        scores.append(model.head(body(**arguments).last_hidden_state[:, 0])[:, 0].float().cpu())
    return torch.cat(scores)
