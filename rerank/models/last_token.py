"""Heads on the last token: classifiers made of a decoder and a linear layer, as transformers builds them.

A decoder's token sees the tokens before it, so the last one alone has seen the query and the whole passage. A passage
does not end with the padding token, which transformers would not score.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from rerank.models.packing import in_mode
from rerank.utils.errors import UserError

TOLERANCE = 1e-4
"""The largest difference between the model's own score of a probe and ours, relative to the score."""


class LastTokenHead(NamedTuple):
    """The two parts of a classifier that scores the last token: `body` gives `last_hidden_state`, `head` one output."""

    body: Any
    head: nn.Linear


def state_padding(config: Any, tokenizer: Any) -> None:
    """Makes config and tokenizer name the same padding token: the config's, the tokenizer's, or another special one.

    Many decoders name none, and then take no batches. No token is added. The token that the tokenizer puts at the end
    of texts is not chosen, because padding is not scored.
    """
    config = config.get_text_config()
    stated = config.pad_token_id
    if stated is None or not 0 <= stated < len(tokenizer):
        last = tokenizer("a", "b")["input_ids"][-1:]
        special = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id, 0, 1)
        config.pad_token_id = next(token for token in special if token is not None and token not in last)
    if tokenizer.pad_token_id != config.pad_token_id:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(config.pad_token_id)


@torch.no_grad()
def last_token_head(model: Any, name: str) -> LastTokenHead:
    """The parts of a sequence classifier with one output; raises UserError if it does not score its last token."""
    body, pad_id = model.base_model, model.config.get_text_config().pad_token_id
    in_body = {id(module) for module in body.modules()}
    heads = [m for m in model.modules() if isinstance(m, nn.Linear) and id(m) not in in_body]
    if len(heads) == 1 and heads[0].out_features == 1:
        found = LastTokenHead(body, heads[0])
        ids = (torch.arange(6) + pad_id + 1)[None] % model.config.get_text_config().vocab_size
        with in_mode(model, training=False):
            own = model(input_ids=ids, use_cache=False).logits.float()
            ours = found.head(body(input_ids=ids, use_cache=False).last_hidden_state[:, -1]).float()
        if float((own - ours).abs().max()) <= TOLERANCE * float(own.abs().max()):
            return found
    raise UserError(
        f"encoder {name}: the head of {type(model).__name__} is not one linear layer on the last token; expected an "
        "encoder, or a decoder with such a head, such as Qwen3ForSequenceClassification"
    )
