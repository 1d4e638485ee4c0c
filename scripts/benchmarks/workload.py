"""What the benchmarks of text work on: an encoder and synthetic candidates for it."""

import itertools
import string
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from rerank.batches.pair_template import pair_template
from rerank.batches.passages import PassageBuilder
from rerank.data.tokens import open_store, tokenise
from rerank.models.cross_encoder import CrossEncoder, open_cross_encoder
from rerank.models.hub import encoder_folder
from rerank.types import Candidates
from scripts.benchmarks.lengths import CUT, document_lengths, make_queries, make_texts, one_piece_words

SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}
"""BERTs that are made here, with random weights: of a speed, the weights say nothing."""

VOCABULARY = 30_522
FIRST_WORD = 4
"""Tokens that a text's first word may take beyond one: byte-level tokenizers know it with a space before it only."""


@dataclass(frozen=True)
class World:
    """An encoder, and candidates whose texts it can read.

    `folder` is the encoder's Hugging Face folder, `model` is on the CPU. `inputs_of` holds the candidates' texts
    tokenised, `texts` and `queries` the texts themselves.
    """

    folder: Path
    model: CrossEncoder
    tokenizer: Any
    inputs_of: PassageBuilder
    queries: dict[str, str]
    texts: dict[str, str]
    candidates: list[Candidates]

    def passage_lengths(self) -> np.ndarray:
        """Tokens of every passage of every candidate, query and special tokens included, without padding."""
        pairs = [(c.query_id, doc_id) for c in self.candidates for doc_id in c.doc_ids]
        return np.concatenate([self.inputs_of.lengths(*pair) for pair in pairs])


@contextmanager
def encoder(name: str, own_head: bool = False) -> Iterator[Path]:
    """The folder of an encoder: a name of SHAPES, a folder, or a name on the hub.

    With `own_head`, one that is made here is a cross-encoder with one output. Raises UserError where it cannot be had.
    """
    if name not in SHAPES:
        yield encoder_folder(name)
        return
    with TemporaryDirectory() as folder:
        yield make_encoder(Path(folder), own_head, **SHAPES[name])


def make_encoder(folder: Path, own_head: bool, vocabulary: int = VOCABULARY, seed: int = 0, **shape: Any) -> Path:
    """Writes a BERT with random weights and the `shape` of a BertConfig, and its tokenizer, into `folder`."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer
    from transformers.utils.logging import disable_progress_bar

    letters = itertools.product(string.ascii_lowercase, repeat=4)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map("".join, itertools.islice(letters, vocabulary - 5))]
    settings: dict[str, Any] = {"vocab_size": len(pieces), "max_position_embeddings": 512, "num_labels": 1}
    config = BertConfig(**settings | shape)
    disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config) if own_head else BertModel(config, add_pooling_layer=False)
        model.save_pretrained(folder)
    BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=512).save_pretrained(folder)
    return folder


def make_world(folder: Path, lists: int, documents: int, one_passage: bool = False, seed: int = 0) -> World:
    """A world of `lists` queries with `documents` candidates each, every document its own; half of them are relevant.

    `folder` is the encoder's. With `one_passage` every document fits the encoder in one piece.
    """
    rng = np.random.default_rng(seed)
    model, tokenizer, max_length = open_cross_encoder(str(folder), "mean", seed)
    words, template = one_piece_words(tokenizer), pair_template(tokenizer)
    queries = {f"q{number}": text for number, text in enumerate(make_queries(lists, words, rng))}
    tokens = dict(zip(queries, tokenise(list(queries.values()), tokenizer), strict=True))
    special = len(template.prefix) + len(template.middle) + len(template.suffix)
    longest = min(CUT, max_length - special - max(map(len, tokens.values())) - FIRST_WORD)
    lengths = document_lengths(lists * documents, rng, longest if one_passage else None)
    texts = {f"d{number}": text for number, text in enumerate(make_texts(lengths, words, rng))}
    with TemporaryDirectory() as cache:  # the store stays readable without its file's name
        store = open_store(Path(cache), list(texts), lambda ids: [texts[i] for i in ids], tokenizer, CUT, "bench")
    names = list(texts)
    labels = tuple(int(place < documents // 2) for place in range(documents))
    candidates = [
        Candidates(query_id, tuple(names[number * documents : (number + 1) * documents]), labels)
        for number, query_id in enumerate(queries)
    ]
    return World(
        folder, model, tokenizer, PassageBuilder(tokens, store, template, max_length), queries, texts, candidates
    )
