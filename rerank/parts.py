"""From the configuration to the parts that training and re-ranking work with: the loss, the device, the inputs."""

import contextlib
import inspect
import os
import platform
import resource
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from rerank.batches.template import pair_template
from rerank.batches.text import TextInputs
from rerank.config import Config
from rerank.errors import UserError, nearest
from rerank.gradients import Loss
from rerank.locks import locked
from rerank.losses import LOSSES
from rerank.models.cross_encoder import CrossEncoder, open_cross_encoder
from rerank.preparation import Prepared
from rerank.progress import say
from rerank.tokens import open_store, tokenise


def make_loss(config: Config) -> Loss:
    """The loss of a configuration; raises UserError for an unknown name or a hyperparameter that it does not have."""
    table = config.loss
    if table.name not in LOSSES:
        raise UserError(f"--loss {table.name}: no such loss; {nearest(table.name, LOSSES)}")
    function = LOSSES[table.name]
    taken = [name for name in list(inspect.signature(function).parameters)[3:] if name != "generator"]
    for key in table.hyperparameters():
        if key not in taken:
            raise UserError(
                f"--loss.{key.replace('_', '-')}: {table.name} has no such hyperparameter; "
                f"it takes {', '.join(taken) or 'none'}"
            )
    loss: Loss = partial(function, **table.hyperparameters())
    _try(loss, table.name)
    return loss


def _try(loss: Loss, name: str) -> None:
    try:
        loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]]))
    except ValueError as error:
        raise UserError(f"--loss {name}: {error}") from error


def open_accelerator(config: Config) -> Accelerator:
    """The processes and the device of this run: a GPU where there is one, and bf16 where it has it."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=_precision(config))
    if accelerator.device.type == "cpu" and accelerator.num_processes == 1 and "MASTER_ADDR" in os.environ:
        say(
            "accelerate launches one process on CPU unless it has MPI, so this is the only one; "
            "for two on this machine: torchrun --nproc_per_node 2 -m rerank ..."
        )
    return accelerator


@contextlib.contextmanager
def alone(accelerator: Accelerator, folder: Path, what: str) -> Iterator[None]:
    """`locked` for all processes of this run, which wait together for those of other runs."""
    with locked(folder, what) if accelerator.is_main_process else contextlib.nullcontext():
        accelerator.wait_for_everyone()
        yield


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process took so far: its tensors on a GPU, and else all of it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def device_name(device: torch.device) -> str:
    """The processor, or the GPU, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _precision(config: Config) -> str:
    if config.training.precision == "auto":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return {"float32": "no", "bf16": "bf16"}[config.training.precision]


def open_model(config: Config, encoder: str, accelerator: Accelerator) -> tuple[CrossEncoder, Any, int]:
    """The model of an encoder on its device, its tokenizer, and the tokens that fit one passage."""
    opened = model, _, _ = open_cross_encoder(encoder, config.encoder.pooling, config.training.seed)
    model.to(accelerator.device)
    if config.training.gradient_checkpointing:
        model.checkpoint_activations()
    if accelerator.is_main_process:
        if model.pads:
            say(f"{encoder}: {model.why_padded}, so its passages are padded, like lengths together")
        elif model.attention_dropout() != "0.0":
            say(f"attention dropout: {model.attention_dropout()}")
    return opened


def text_inputs(config: Config, prepared: Prepared, tokenizer: Any, max_length: int) -> TextInputs:
    """Tokenises queries and candidates; the documents once, on disk."""
    doc_ids = sorted({doc_id for found in prepared.candidates.values() for doc_id in found.doc_ids})
    store = open_store(
        prepared.folder / "tokens",
        doc_ids,
        prepared.collection.texts,
        tokenizer,
        config.encoder.max_doc_tokens,
        prepared.collection.fingerprint,
    )
    queries = dict(
        zip(
            prepared.candidates,
            tokenise([prepared.collection.queries[q] for q in prepared.candidates], tokenizer),
            strict=True,
        )
    )
    return TextInputs(queries, store, pair_template(tokenizer), max_length)


def what_was_cut(inputs_of: TextInputs, max_doc_tokens: int) -> str:
    """A line for people: how many documents and queries are longer than what the model sees of them."""
    told, queries = inputs_of.documents.statistics(), inputs_of.queries_cut()
    return (
        f"{told['documents']} candidate documents, {told['documents_cut']} cut at {max_doc_tokens} tokens "
        f"({told['tokens_cut'] / max(1, told['tokens']):.1%} of all tokens), {told['documents_empty']} empty; "
        f"{queries} of {len(inputs_of.queries)} queries cut at {inputs_of.room // 2} tokens"
    )
