"""Tiny random encoders of every supported architecture, written as ordinary Hugging Face folders.

Two layers, 32 wide, a vocabulary made of the given words, and the settings and the tokenizer of the architecture's real
model: what a test learns from them about shapes, templates, positions and token types holds for the real ones.
"""

import string
from pathlib import Path
from typing import Any

import torch

CROSS_ENCODER_KINDS = ["bert", "roberta", "electra", "distilbert", "modernbert", "xlm-r"]

_DEBERTA_V3: dict[str, Any] = {  # as in deberta-v3-base
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
_ROBERTA = {"type_vocab_size": 1, "bos_token_id": 0, "eos_token_id": 2}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {}),
    "roberta": ("RobertaConfig", _ROBERTA),
    "electra": ("ElectraConfig", {"embedding_size": 16}),
    "distilbert": ("DistilBertConfig", {}),
    "mpnet": ("MPNetConfig", {"bos_token_id": 0, "eos_token_id": 2}),
    "deberta-v2": ("DebertaV2Config", _DEBERTA_V3),
    "modernbert": ("ModernBertConfig", {}),
    "xlm-r": ("XLMRobertaConfig", _ROBERTA),
}
"""The name of each kind's configuration in transformers, and what only this kind has."""
KINDS = list(CONFIGS)
_CHARACTERS = string.ascii_letters + string.digits + string.punctuation


def make_encoder(
    kind: str, folder: Path, words: list[str], seed: int = 0, max_positions: int | None = None, **settings: int
) -> Path:
    """Writes an encoder without a head (`AutoModel`) and its tokenizer into `folder`, and gives the folder back.

    `kind` is one of KINDS. `words` become one token each, other words are spelled. `max_positions` is the longest input
    in tokens, special tokens included; by default that of the real model (512, ModernBERT 8192). `settings` are those
    of the config. The weights follow from `seed` alone. DeBERTa-v3 is the kind deberta-v2.
    """
    from transformers import AutoModel

    return _save(AutoModel, kind, folder, words, seed, max_positions, **settings)


def make_cross_encoder(
    kind: str, folder: Path, words: list[str], seed: int = 0, max_positions: int | None = None, outputs: int = 1
) -> Path:
    """As `make_encoder`, with a head of `outputs` values, as hub cross-encoders have it; CROSS_ENCODER_KINDS."""
    from transformers import AutoModelForSequenceClassification

    return _save(AutoModelForSequenceClassification, kind, folder, words, seed, max_positions, num_labels=outputs)


def make_sparse_encoder(folder: Path, words: list[str], inference_free: bool = False) -> Path:
    """Writes a sparse encoder of sentence-transformers, SPLADE with random weights; gives the folder back.

    An `inference_free` one takes the weights of a query's words from a table.
    """
    from sentence_transformers import SparseEncoder
    from transformers import AutoModelForMaskedLM

    plain = _save(AutoModelForMaskedLM, "bert", folder.with_name(f"{folder.name}-plain"), words, 0, 64)
    model = SparseEncoder(str(plain), device="cpu")
    if inference_free:
        from sentence_transformers.sentence_transformer.modules import Router
        from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

        table = SparseStaticEmbedding(tokenizer=model.tokenizer)
        router = Router.for_query_document(query_modules=[table], document_modules=list(model))
        model = SparseEncoder(modules=[router], similarity_fn_name="dot", device="cpu")
    model.save(str(folder))
    return folder


def _save(
    auto: Any, kind: str, folder: Path, words: list[str], seed: int, max_positions: int | None, **settings: int
) -> Path:
    tokenizer = make_tokenizer(kind, words, max_positions)
    config = _config(kind, tokenizer, max_positions, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        auto.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(kind: str, words: list[str], max_positions: int | None = None) -> Any:
    """The tokenizer of `make_encoder`: WordPiece, byte-level BPE or Unigram, with the real one's special tokens."""
    import transformers

    words = list(dict.fromkeys(words))
    limit: dict[str, Any] = {"model_max_length": max_positions or 512}
    if kind == "modernbert":
        return _modernbert_tokenizer(words, max_positions or 8192)
    if kind == "roberta":
        vocabulary, merges = _byte_pairs(["<s>", "<pad>", "</s>", "<unk>"], words)
        return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges, **limit)
    if kind == "xlm-r":
        pieces = _unigrams(["<s>", "<pad>", "</s>", "<unk>"], words, ["<mask>"])
        return transformers.XLMRobertaTokenizer(vocab=pieces, **limit)
    if kind == "deberta-v2":  # the real one sets no limit
        limit = {"model_max_length": max_positions} if max_positions else {}
        pieces = _unigrams(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], words, ["[MASK]"])
        return transformers.DebertaV2Tokenizer(vocab=pieces, unk_id=3, **limit)
    if kind == "mpnet":
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *_word_pieces(words), "<mask>"]
    else:
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_word_pieces(words)]
    return getattr(transformers, CONFIGS[kind][0].replace("Config", "Tokenizer"))(vocab=numbered(tokens), **limit)


def _config(kind: str, tokenizer: Any, max_positions: int | None, **settings: Any) -> Any:
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    name, of_kind = CONFIGS[kind]
    positions = max_positions or (8192 if kind == "modernbert" else 512)
    if of_kind.get("bos_token_id") == 0:  # as RoBERTa's, which start at 2, after padding
        positions += 2
    if kind == "distilbert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    if kind == "modernbert":
        first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
        sizes |= {"cls_token_id": first, "sep_token_id": last, "bos_token_id": first, "eos_token_id": last}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    return getattr(transformers, name)(max_position_embeddings=positions, **{**sizes, **of_kind, **settings})


def _modernbert_tokenizer(words: list[str], max_length: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    vocabulary, merges = _byte_pairs(list(names.values()), words)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        mask_token="[MASK]",
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )


def numbered(tokens: list[str]) -> dict[str, int]:
    """The vocabulary of these tokens."""
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _word_pieces(words: list[str]) -> list[str]:
    characters = sorted(set(_CHARACTERS.lower()))
    return [*(word.lower() for word in words), *characters, *(f"##{character}" for character in characters)]


def spelled(words: list[str]) -> list[tuple[str, str]]:
    """Merges that spell every word from its left."""
    return list(dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word))))


def _byte_pairs(specials: list[str], words: list[str]) -> tuple[dict[str, int], Any]:
    """Words first as inside a text (Ġ is a space), then as at its start."""
    from tokenizers import pre_tokenizers

    parts = [pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(word) for word in words]
    starts = [part for of_word in parts for part, _ in of_word]
    merges = spelled([f"Ġ{start}" for start in starts] + starts)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return numbered([*specials, *alphabet, *(left + right for left, right in merges)]), merges


def _unigrams(specials: list[str], words: list[str], last: list[str]) -> list[tuple[str, float]]:
    """Whole words score above any spelling of them; ▁ is a space."""
    scores = dict.fromkeys(specials, 0.0)
    scores |= dict.fromkeys([f"▁{word}" for word in words], -5.0)
    for character in ["▁", *_CHARACTERS]:
        scores.setdefault(character, -10.0)
    return [*scores.items(), *((token, 0.0) for token in last)]
