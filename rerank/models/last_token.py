"""Heads on the last token: classifiers made of a decoder and a linear layer, as transformers builds them.

A decoder's token sees the tokens before it, so the last one alone has seen the query and the whole passage.
transformers (`GenericForSequenceClassification` and older classes) scores the rightmost token that is not padding.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.packing import in_mode
from rerank.utils.errors import UserError

TOLERANCE = 1e-4
"""The largest difference between the model's own score of a probe and ours, relative to the score."""


@dataclass(frozen=True)
class LastTokenHead:
    """The two parts of a classifier that scores the last token: `body` gives `last_hidden_state`, `head` one output.

    `pad_id` is the padding token of the model's config: tokens of this id at the end of a passage are not scored.
    """

    body: Any
    head: nn.Linear
    pad_id: int

    def scored_tokens(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """The last token of each packed passage that is not padding, the first if all are: (passages,) int64.

        ids: (tokens,); offsets: (passages + 1,), passage p is ids[offsets[p]:offsets[p + 1]], on the same device.
        """
        starts = offsets[:-1].long()
        passages = torch.arange(len(starts), device=ids.device)
        owners = torch.repeat_interleave(passages, offsets.diff(), output_size=len(ids))
        tokens = torch.arange(len(ids), device=ids.device).where(ids != self.pad_id, 0)
        return starts.scatter_reduce(0, owners, tokens, "amax")

    def vectors(self, rows: Tensor | int, scored: Tensor, arguments: dict[str, Any]) -> Tensor:
        """(passages, hidden) vectors of the token `scored`, (passages,), of each of the `rows` that the body returns.

        Packed passages are one row, 0; padded ones have a row each.
        """
        hidden: Tensor = self.body(**arguments, use_cache=False).last_hidden_state
        return hidden[rows, scored]


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
        found = LastTokenHead(body, heads[0], pad_id)
        ids = (torch.arange(6) + pad_id + 1)[None] % model.config.get_text_config().vocab_size
        with in_mode(model, training=False):
            own = model(input_ids=ids, use_cache=False).logits.float()
            ours = found.head(found.vectors(0, torch.tensor([5]), {"input_ids": ids})).float()
        if float((own - ours).abs().max()) <= TOLERANCE * float(own.abs().max()):
            return found
    raise UserError(
        f"encoder {name}: the head of {type(model).__name__} is not one linear layer on the last token; expected an "
        "encoder, or a decoder with such a head, such as Qwen3ForSequenceClassification"
    )
