"""The workload of the text benchmarks: an encoder and synthetic candidates for it."""

import itertools
import string
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from accelerate import Accelerator

from rerank.batches.pair_template import pair_template
from rerank.batches.passages import PassageBuilder
from rerank.data.tokens import make_store, tokenise
from rerank.data.types import Candidates
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.hub import encoder_folder
from rerank.models.tiny_bert import make_vocabulary, random_bert, save_bert
from rerank.utils.progress import log
from scripts.benchmarks.lengths import CUT, document_lengths, make_queries, make_texts, one_piece_words

SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}
"""Shapes of BERTs with random weights: speed does not depend on the weights."""

VOCABULARY = 30_522
SPECIAL_TOKENS = 5
FIRST_WORD = 4
"""Extra tokens that the first word of a text may need: byte-level tokenizers know words with a leading space only."""


@dataclass(frozen=True)
class Workload:
    """An encoder, and candidates with texts that it can read.

    `folder` is the encoder's Hugging Face folder; `model` is on the CPU. `builder` has the tokenised texts; `texts` and
    `queries` are the texts themselves.
    """

    folder: Path
    model: CrossEncoder
    tokenizer: Any
    builder: PassageBuilder
    queries: dict[str, str]
    texts: dict[str, str]
    candidates: list[Candidates]

    def passage_lengths(self) -> np.ndarray:
        """Tokens of every passage of every candidate, with query and special tokens, without padding."""
        pairs = [(c.query_id, doc_id) for c in self.candidates for doc_id in c.doc_ids]
        return np.array(self.builder(pairs).lengths())


@contextmanager
def encoder(name: str, own_head: bool = False) -> Iterator[Path]:
    """The folder of an encoder: a name of SHAPES, a folder, or a name on the hub.

    With `own_head`, an encoder of SHAPES is a cross-encoder with one output. Raises UserError for an encoder that
    cannot be loaded.
    """
    if name not in SHAPES:
        yield encoder_folder(name)
        return
    with TemporaryDirectory() as folder:
        yield make_encoder(Path(folder), own_head, **SHAPES[name])


def make_encoder(folder: Path, own_head: bool, vocabulary: int = VOCABULARY, seed: int = 0, **shape: Any) -> Path:
    """Writes a BERT with random weights and the `shape` of a BertConfig, and its tokenizer, into `folder`."""
    from transformers import BertForSequenceClassification, BertModel

    architecture = BertForSequenceClassification if own_head else partial(BertModel, add_pooling_layer=False)
    pieces = letter_pieces(vocabulary)
    save_bert(random_bert(architecture, pieces, seed, num_labels=1, **shape), pieces, folder)
    return folder


def letter_pieces(vocabulary: int = VOCABULARY) -> dict[str, int]:
    """The ids of BERT's special tokens and of words of four letters, `vocabulary` together."""
    letters = itertools.product(string.ascii_lowercase, repeat=4)
    return make_vocabulary(map("".join, itertools.islice(letters, vocabulary - SPECIAL_TOKENS)))


def make_workload(folder: Path, lists: int, documents: int, one_passage: bool = False, seed: int = 0) -> Workload:
    """A workload of `lists` queries with `documents` distinct candidates each, half of them relevant.

    `folder` is the encoder's. With `one_passage` every document fits into one passage.
    """
    model, tokenizer, max_length = open_cross_encoder(str(folder), "mean", seed)
    return fill_workload(folder, model, tokenizer, max_length, lists, documents, one_passage, seed)


def fill_workload(
    folder: Path,
    model: CrossEncoder,
    tokenizer: Any,
    max_length: int,
    lists: int,
    documents: int,
    one_passage: bool = False,
    seed: int = 0,
) -> Workload:
    """As `make_workload`, with a model that is open; a passage has at most `max_length` tokens."""
    rng = np.random.default_rng(seed)
    words, template = one_piece_words(tokenizer), pair_template(tokenizer)
    queries = {f"q{number}": text for number, text in enumerate(make_queries(lists, words, rng))}
    tokens = dict(zip(queries, tokenise(list(queries.values()), tokenizer), strict=True))
    special = len(template.prefix) + len(template.middle) + len(template.suffix)
    longest = min(CUT, max_length - special - max(map(len, tokens.values())) - FIRST_WORD)
    lengths = document_lengths(lists * documents, rng, longest if one_passage else None)
    texts = {f"d{number}": text for number, text in enumerate(make_texts(lengths, words, rng))}
    doc_ids = list(texts)
    store = make_store(doc_ids, texts.values(), tokenizer, CUT)
    labels = tuple(int(rank < documents // 2) for rank in range(documents))
    candidates = [
        Candidates(query_id, tuple(doc_ids[number * documents : (number + 1) * documents]), labels)
        for number, query_id in enumerate(queries)
    ]
    return Workload(
        folder, model, tokenizer, PassageBuilder(tokens, store, template, max_length), queries, texts, candidates
    )


def on_device(model: CrossEncoder, accelerator: Accelerator) -> CrossEncoder:
    """The model, moved to the device as `rerank train` and `rerank score` move it."""
    for line in model.place(accelerator.device, accelerator.autocast):
        log.info(line)
    return model
