"""Scores on the device, packed as in a run: against those of the CPU in float32, and against padded passages."""

import torch
from torch import Tensor
from transformers import AutoModel

from rerank.batches.batch import Packed
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.encoder_inputs import padded
from rerank.models.memory import open_budget
from rerank.models.scoring import pairs_of, score_candidates, start_passages
from scripts.benchmarks.workload import Workload, on_device
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import (
    SCORE_BOUNDS,
    Setting,
    cpu_scores,
    encoder_folder,
    flat_scores,
    of_spread,
    open_documents,
    opened,
    precisions,
)

PASSAGES = 8
"""Padded passages of a forward pass."""


def check(setting: Setting) -> list[Row]:
    """Two rows for each encoder and each precision."""
    rows = []
    for name, (lists, documents) in setting.encoders.items():
        with encoder_folder(name) as folder:
            workload = open_documents(folder, lists, documents, setting)
            expected = cpu_scores(workload)
            for precision in precisions(setting):
                rows += _compared(setting, name, workload, precision, expected)
    return rows


def _compared(setting: Setting, name: str, workload: Workload, precision: str, expected: Tensor) -> list[Row]:
    with opened(setting, precision) as accelerator:
        device, budget = accelerator.device, open_budget("auto", accelerator.device)
        model = on_device(workload.model, accelerator).eval()
        run = score_candidates(model, workload.builder, workload.candidates, accelerator, budget)
        inputs = workload.builder(pairs_of(workload.candidates))
        body = AutoModel.from_pretrained(workload.folder, attn_implementation="sdpa").to(device).eval()
        with torch.inference_mode():
            packed = start_passages(model, inputs, device, accelerator.autocast, budget)()
            with accelerator.autocast():
                padded = _padded_scores(body, model, inputs, device)
    what, bound = f"{name}, {precision}: difference / spread", SCORE_BOUNDS[precision]
    scores = at_most(f"scores, {what}", of_spread(flat_scores(run, workload.candidates), expected), bound)
    if model.is_padded:
        return [scores, Row(f"packed against padded, {what}", f"not packed: {model.padding_reason}", "packed", False)]
    return [scores, at_most(f"packed against padded, {what}", of_spread(packed, padded), bound)]


def _padded_scores(body: torch.nn.Module, model: CrossEncoder, inputs: Packed, device: torch.device) -> Tensor:
    """(passages,) float32 scores on the CPU: the model's linear layer on the vectors of the body."""
    scores = []
    for begin in range(0, len(inputs.documents), PASSAGES):
        some = inputs.take(range(begin, min(begin + PASSAGES, len(inputs.documents))))
        arguments = padded(some.to(device), model.pad_id)
        scores.append(model.head(body(**arguments).last_hidden_state[:, 0])[:, 0].float().cpu())
    return torch.cat(scores)
