"""The cross-encoder of an experiment on its device, and what it sees of the texts."""

from typing import Any

from accelerate import Accelerator

from rerank.batches.passages import PassageBuilder
from rerank.config import Config
from rerank.data.splitting import Splitting
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.utils.progress import log


def open_model(config: Config, encoder: str, accelerator: Accelerator) -> tuple[CrossEncoder, Any, int]:
    """The model of an encoder on its device, its tokenizer, and the tokens that fit into one passage."""
    settings = config.encoder
    model, tokenizer, max_length = open_cross_encoder(
        encoder, settings.pooling, config.training.seed, settings.template, settings.lora_rank
    )
    model.splitting = Splitting(settings.passage_overlap, settings.title_tokens)
    lines = model.place(accelerator.device, accelerator.autocast, config.training.precision == "auto")
    if config.training.gradient_checkpointing:
        model.checkpoint_activations()
    if accelerator.is_main_process:
        for line in lines:
            log.info(line)
        if model.is_padded:
            log.info(f"{encoder}: {model.padding_reason}, so its passages are padded, in groups of similar length")
    return model, tokenizer, max_length


def truncation_summary(passages: PassageBuilder, max_doc_tokens: int) -> str:
    """One line: how many documents and queries are longer than what the model sees of them."""
    stats = passages.documents.statistics()
    return (
        f"{stats['documents']} candidate documents, {stats['documents_cut']} cut at {max_doc_tokens} tokens "
        f"({stats['tokens_cut'] / max(1, stats['tokens']):.1%} of all tokens), {stats['documents_empty']} empty; "
        f"{passages.truncated_queries()} of {len(passages.queries)} queries cut at {passages.max_tokens // 2} tokens"
    )
