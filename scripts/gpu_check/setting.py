"""What every group of checks starts from: the device in one of its precisions, an encoder, and documents for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor

from rerank.config import TrainingSettings
from rerank.data.tokens import Tokenisation, make_store
from rerank.data.types import Candidates, Run
from rerank.models.gpu import Precision
from rerank.models.products import set_tf32
from rerank.models.scoring import pairs_of
from rerank.training.device import kept_torch_settings, open_accelerator, precision_of
from scripts.benchmarks.workload import SHAPES, Workload, make_encoder, make_workload

TINY = "tiny"
ENCODERS: dict[str, dict[str, Any]] = {
    TINY: {
        "vocabulary": 1000,
        "initializer_range": 0.1,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    },
    "bert-base": dict(SHAPES["bert-base"]),
}
LONG_LIST = 150
"""Documents of the list whose gradient is computed in parts."""

FLOAT32: Precision = "float32"
HALF = "bf16"
SCORE_BOUNDS = {FLOAT32: 1e-4, "bf16": 2e-2, "fp16": 2e-2}
"""The largest difference of a score from the CPU's in float32, over the spread of the scores (highest - lowest)."""

GRADIENT_BOUNDS = {FLOAT32: 1e-4, "bf16": 1e-1, "fp16": 1e-1}
"""The norm of the difference from the CPU's gradient in float32, over the gradient's norm.

bf16 rounds each of a dozen products a layer to 1 part in 256; another dropout mask, a wrong scale or a lost passage
changes the gradient by more than a half.
"""

SHARPNESS = 4.0
"""The factor of the weights of queries and keys.

With BERT's initial weights a token attends to all others alike, so that the vectors of all passages are almost the
same. A trained encoder is sharper too.
"""

SAMPLE = 8
"""Documents, at most, by whose vectors the linear layer is chosen."""


@dataclass(frozen=True)
class Setting:
    """The device by its name (cpu, cuda, cuda:1, mps), and whether the large encoder is checked too."""

    device: str
    full: bool

    @property
    def kind(self) -> str:
        """The type of the device."""
        return self.device.partition(":")[0]

    @property
    def encoders(self) -> dict[str, tuple[int, int]]:
        """The encoders, with the lists and the documents of a list that each one scores."""
        return {TINY: (8, 4), "bert-base": (1, 4)} if self.full else {TINY: (2, 4)}

    @property
    def precision(self) -> Precision:
        """That of a run; a CPU, which the others are compared with, computes in float32."""
        return FLOAT32 if self.kind == "cpu" else "auto"

    @property
    def largest(self) -> str:
        """The encoder that is timed."""
        return list(self.encoders)[-1]


@contextmanager
def opened(setting: Setting, precision: str = "", deterministic: bool = False) -> Iterator[Accelerator]:
    """The device in a precision, by default that of a run; float32 products are not rounded to TF32."""
    chosen = TrainingSettings(
        precision=precision or setting.precision, device=setting.device, deterministic=deterministic
    )
    with kept_torch_settings():
        accelerator = open_accelerator(chosen)
        if precision == FLOAT32:
            set_tf32(False)
        yield accelerator


def own_precision(setting: Setting) -> str:
    """The precision that a run on the device takes."""
    with opened(setting) as accelerator:
        return precision_of(accelerator)


def precisions(setting: Setting) -> list[str]:
    """Float32, and the half precision that a run on the device takes; on a CPU, where a run takes none, bf16."""
    half = HALF if setting.kind == "cpu" else own_precision(setting)
    return [FLOAT32] if half == FLOAT32 else [FLOAT32, half]


@contextmanager
def encoder_folder(name: str, own_head: bool = False, dropout: float = 0.1) -> Iterator[Path]:
    """The folder of a random encoder of ENCODERS, whose passages have vectors that differ (see SHARPNESS)."""
    with TemporaryDirectory() as temporary:
        folder = make_encoder(Path(temporary), own_head, hidden_dropout_prob=dropout, **ENCODERS[name])
        file = folder / "model.safetensors"
        weights = load_file(file)
        for key, value in weights.items():
            if key.endswith(("self.query.weight", "self.key.weight")):
                weights[key] = value * SHARPNESS
        save_file(weights, file, {"format": "pt"})
        yield folder


def open_documents(folder: Path, lists: int, documents: int, setting: Setting) -> Workload:
    """A workload for the encoder of a folder; without the large encoder, documents have at most 120 tokens."""
    doc_tokens, passage_tokens = (800, 512) if setting.full else (120, 64)
    workload = make_workload(folder, lists, documents)
    tokenisation = Tokenisation(workload.tokenizer, doc_tokens)
    store = make_store(list(workload.texts), workload.texts.values(), tokenisation)
    builder = replace(workload.builder, documents=store, max_length=passage_tokens)
    workload = replace(workload, builder=builder)
    _spread_scores(workload)
    return workload


@torch.no_grad()
def _spread_scores(workload: Workload) -> None:
    """Turns the linear layer to the direction in which the vectors of the passages differ most, with variance 1.

    As after training, the scores then differ by far more than rounding changes them. Some of the documents give the
    direction.
    """
    pairs = pairs_of(workload.candidates)
    vectors: list[Tensor] = []
    model = workload.model.eval()
    hook = model.head.register_forward_pre_hook(lambda _, inputs: vectors.append(inputs[0].float()))
    model(workload.builder(pairs[:: -(-len(pairs) // SAMPLE)]))
    hook.remove()
    joined = torch.cat(vectors)
    direction = torch.linalg.svd(joined - joined.mean(dim=0), full_matrices=False)[2][0]
    model.head.weight.copy_(direction / (joined @ direction).std())


@torch.inference_mode()
def cpu_scores(workload: Workload) -> Tensor:
    """(documents,) scores in float32, document by document, on the CPU, where the model stays."""
    model = workload.model.to("cpu").eval()
    scores = []
    for pair in pairs_of(workload.candidates):
        inputs = workload.builder([pair])
        scores.append(model.pool(model(inputs), inputs.documents))
    return torch.cat(scores)


def flat_scores(run: Run, candidates: list[Candidates]) -> Tensor:
    """(documents,) float32 scores of a run, in the candidates' order."""
    return torch.tensor([run[c.query_id][doc_id] for c in candidates for doc_id in c.doc_ids])


def of_spread(found: Tensor, expected: Tensor) -> float:
    """The largest difference, over the spread of the expected scores."""
    return float((found - expected).abs().max() / (expected.max() - expected.min()))
