"""Tiny random decoders with a one-output classification head, written as ordinary Hugging Face folders.

Two layers, 32 wide, fewer key and value heads than query heads, and the tokenizer of the architecture's real model:
byte-level BPE that splits as Qwen does, or BPE over whole texts with "▁" for a space (Llama, Gemma).
"""

from pathlib import Path
from typing import Any

import torch

from tests.support.tiny_encoders import numbered, spelled

CONFIGS = {
    "qwen3": "Qwen3Config",
    "llama": "LlamaConfig",
    "gemma": "GemmaConfig",
    "gemma2": "Gemma2Config",
    "gemma3": "Gemma3TextConfig",
    "mistral": "MistralConfig",
}
DECODERS = list(CONFIGS)
PACKED_DECODERS = ["qwen3", "llama", "gemma", "gemma3", "mistral"]

_CHARACTERS = [chr(code) for code in range(33, 127)]


def make_decoder(
    kind: str,
    folder: Path,
    words: list[str],
    seed: int = 0,
    max_positions: int = 300,
    outputs: int = 1,
    head: bool = True,
    **settings: Any,
) -> Path:
    """Writes a decoder of DECODERS with a head of `outputs` values and its tokenizer, and gives the folder back.

    `words` become one token each. `settings` are those of the config; Gemma 2 and 3 and Mistral have windows of 24
    tokens. Without a `head` it is a language model. The weights follow from `seed` alone, and are large enough for
    attention to matter.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    tokenizer = make_tokenizer(kind, words, max_positions)
    config = _config(kind, tokenizer, max_positions, num_labels=outputs, **settings)
    auto = AutoModelForSequenceClassification if head else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = auto.from_config(config)
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.dim() > 1 else 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(kind: str, words: list[str], max_length: int = 300) -> Any:
    """The tokenizer of `make_decoder`; "?", "." and ")" merge with a line break after them, as in Qwen's vocabulary."""
    import transformers
    from tokenizers import pre_tokenizers

    words = list(dict.fromkeys(words))
    if kind == "qwen3":
        merges = spelled([f"Ġ{word}" for word in words] + words + ["?Ċ", ".Ċ", ")Ċ", ">Ċ"])
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        return transformers.Qwen2Tokenizer(
            vocab=numbered([*specials, *alphabet, *map("".join, merges)]),
            merges=merges,
            model_max_length=max_length,
            extra_special_tokens=specials[1:],
        )
    merges = spelled([f"▁{word}" for word in words] + words)
    alphabet = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁", *_CHARACTERS]
    if kind in ("llama", "mistral"):
        specials, name = ["<unk>", "<s>", "</s>"], "LlamaTokenizer"
    else:
        specials, name = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"], "GemmaTokenizer"
    vocabulary = numbered([*specials, *alphabet, *map("".join, merges)])
    return getattr(transformers, name)(vocab=vocabulary, merges=merges, model_max_length=max_length)


def _config(kind: str, tokenizer: Any, max_positions: int, **settings: Any) -> Any:
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 64,
        "max_position_embeddings": max_positions,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if kind == "gemma3":
        settings["layer_types"] = ["sliding_attention", "full_attention"]
    if kind in ("gemma2", "gemma3", "mistral"):
        settings.setdefault("sliding_window", 24)
    return getattr(transformers, CONFIGS[kind])(**{**sizes, **settings})
